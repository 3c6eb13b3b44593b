-- hold.lua -- at most so many at once: who is in flight under one key.   engine/reserve/hold_redis.c and sync/message/presence.c ask it.
--
-- KEYS     those in flight (sorted sets): "instance:number" -> ms of TIME at which it is taken for dead. One; of state any number
-- ARGV     1 to 3 as sync/ask/pool.h has them; 4 what: hold, release, state; 5 life in ms; 6 limit (of hold); 7.. a member for each
--          of KEYS
-- Answers  {ARGV[2], status, how many are in flight under the last of KEYS}
--          hold      OK      in flight, or had been by this name: asking again changes nothing;  DENIED
--                    MORE    nothing was decided, but those that were there were dead: ask again
--          release   OK      not in flight (any more); how many: dead ones that nobody has cleared away yet count
--          state     OK      each is, whether it had been taken for dead or not
--
-- Always true: every member ends, unless its engine says again that it lives; the set ends with the last of them. No way through
-- this script is without a write, so a replica answers READONLY and decides nothing. What may empty the set is the last touch of
-- it, for a slot that moves (of a cluster) refuses a key that is not there, in the middle of a script.
local call = redis.call
local what, life, limit = ARGV[4], ARGV[5], tonumber(ARGV[6])

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function enter(holds, member)
  call('ZADD', holds, now + life, member)
  if call('PTTL', holds) < tonumber(life) then call('PEXPIRE', holds, life) end
end

local function clear_dead(holds)         -- how many they were
  return call('ZREMRANGEBYSCORE', holds, '-inf', now)
end

local function hold(holds, member)
  local count, score = call('ZCARD', holds), call('ZSCORE', holds, member)
  if count < limit or score and tonumber(score) > now then
    enter(holds, member)
    return 'OK', count + (score and 0 or 1) - clear_dead(holds)
  end
  local left = count - clear_dead(holds)
  if left >= limit then return 'DENIED', left end
  if left == 0 then return 'MORE', 0 end -- the set is gone
  enter(holds, member)
  return 'OK', left + 1
end

local function release(holds, member)
  local count = call('ZCARD', holds)
  return 'OK', count - call('ZREM', holds, member)
end

local function state()
  for i = 1, #KEYS do enter(KEYS[i], ARGV[6 + i]) end
  clear_dead(KEYS[1])
  return 'OK', call('ZCARD', KEYS[#KEYS])
end

local status, count
if what == 'hold' then
  status, count = hold(KEYS[1], ARGV[7])
elseif what == 'release' then
  status, count = release(KEYS[1], ARGV[7])
else
  status, count = state()
end
return {ARGV[2], status, count}
