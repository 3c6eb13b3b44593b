-- hold.lua -- concurrency slots: at most so many calls in flight under one key. Sent by engine/reserve/hold_redis.c and
-- sync/message/presence.c.
--
-- KEYS     the calls in flight (sorted sets): "instance:number" -> ms of TIME at which it counts as dead; below 0: a mark.
--          This call was cancelled, denied when it was repeated, or released (end) at that ms. A copy of it that comes
--          within eleven minutes does nothing. One key; of state any number
-- ARGV     1 to 3 as in sync/ask/call_text.h; 4 what: hold, release, end, state; 5 lifetime in ms; 6 limit (of hold);
--          7.. a member for each of KEYS
-- Replies  {ARGV[2], status, how many are in flight under the last of KEYS}
--          hold      OK      in flight, or was already under this name: repeating it changes nothing;  DENIED
--                    MORE    nothing was decided, but all members were dead: send it again
--          release   OK      not in flight (any more); the number includes dead members that are not removed yet
--          end, and cancel of hold (ARGV[3] is "0")
--                    OK      not in flight, and never will be
--          state     OK      all without a mark are in flight, also those that counted as dead; or the error of a key
--                            that is no sorted set, once those of all other keys are in flight
--
-- Always true: every member expires unless its engine re-sends it; the set expires with the last of them. No member
-- lives longer than one lifetime from now: one that would was written while Redis's clock was ahead. Every path
-- through this script writes, so a replica replies READONLY and decides nothing. The write that may empty the set is
-- the last access to it: in a cluster, a slot that is being moved refuses a missing key in the middle of a script.
local call = redis.call
local what, life, limit = ARGV[4], ARGV[5], tonumber(ARGV[6])
local MARK_MS = 660000                   -- as long as the notes in calls.lua

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function enter(holds, member)
  local said = call('ZADD', holds, now + life, member)
  if type(said) == 'table' then return said end
  if call('PTTL', holds) < tonumber(life) then call('PEXPIRE', holds, life) end
end

local function set_back(holds)           -- Redis's clock was ahead: the lifetime of these begins now
  repeat
    local some = redis.pcall('ZRANGEBYSCORE', holds, '(' .. now + life, '+inf', 'LIMIT', 0, 500)
    for i = 1, #some do call('ZADD', holds, now + life, some[i]) end
  until #some < 500
end

local function clear_dead(holds)         -- returns how many were removed
  return call('ZREMRANGEBYSCORE', holds, 0, now)
end

-- It is not in flight any more, and what comes from now on about it changes nothing.
local function mark(holds, member)
  call('ZREM', holds, '')                -- Redis refuses no later write of this script for want of memory
  call('ZADD', holds, -now, member)
  call('PEXPIRE', holds, MARK_MS)
  redis.pcall('ZREMRANGEBYSCORE', holds, '(' .. MARK_MS - now, '(0')
end

local function is_marked(holds, member)
  local score = call('ZSCORE', holds, member)
  return type(score) == 'string' and tonumber(score) < 0
end

local function size(holds)               -- without marks
  return call('ZCARD', holds) - #redis.pcall('ZRANGEBYSCORE', holds, '-inf', '(0')
end

local function hold(holds, member)
  local count, score = size(holds), call('ZSCORE', holds, member)
  if score and tonumber(score) < 0 then
    call('ZREM', holds, '')
    return 'DENIED', count
  end
  if count < limit or score and tonumber(score) > now then
    enter(holds, member)
    return 'OK', count + (score and 0 or 1) - clear_dead(holds)
  end
  set_back(holds)
  local left = count - clear_dead(holds)
  if left >= limit then return 'DENIED', left end
  if left == 0 then return 'MORE', 0 end -- the set is gone
  enter(holds, member)
  return 'OK', left + 1
end

local function release(holds, member)
  local count = size(holds)
  if is_marked(holds, member) then member = '' end -- the mark stays
  return 'OK', count - call('ZREM', holds, member)
end

local function state()
  local failed
  call = redis.pcall                     -- a key of another type keeps no other from being restated
  for i = 1, #KEYS do
    local said = not is_marked(KEYS[i], ARGV[6 + i]) and enter(KEYS[i], ARGV[6 + i])
    if type(said) == 'table' and said.err then failed = {err = said.err .. ' ' .. KEYS[i]} end
    set_back(KEYS[i])
  end
  if failed then return failed end
  clear_dead(KEYS[1])
  return 'OK', size(KEYS[#KEYS])
end

local status, count
if what == 'end' or what == 'hold' and ARGV[3] == '0' then
  mark(KEYS[1], ARGV[7])
  status, count = 'OK', size(KEYS[1])
elseif what == 'hold' then
  status, count = hold(KEYS[1], ARGV[7])
  if status ~= 'OK' and ARGV[3] == '2' then mark(KEYS[1], ARGV[7]) end
elseif what == 'release' then
  status, count = release(KEYS[1], ARGV[7])
else
  status, count = state()
end
if type(status) == 'table' then return status end
return {ARGV[2], status, count}
