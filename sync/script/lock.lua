-- lock.lua -- one holder at a time, for a limited time (tw_lock(), tw_lock_extend(), tw_lock_release()).
-- In front: calls.lua
--
-- KEYS[1]  the calls, as in calls.lua: only those that were requested twice, unlocked (given is 1 then) or taken back
--          (2); and under "-" for how long the holder wants the lock: "token ms". It lives as long as the lock at least
-- KEYS[2]  the lock (a string): "token fence"; it expires when the lease of the lock ends
-- KEYS[3]  the last fencing token (a string); kept a day longer than any lock
-- ARGV     1 to 3 as in calls.lua; 4 "L" lock, "E" extend, "U" unlock; 5 token, 6 lease time in ms, 7 a fence that the
--          next one is above: the greatest that the caller knows, or the latest moment by Redis's clock that it knows
-- Replies  {number, status, fence, ms that the lock lasts}: OK; HELD by another, whose fence it is; GONE: not held
--          under this token (any more); STALE. Numbers at the end that are 0 may be missing
--
-- Always true: a repeated request with the same token still holds the lock, under the same fence. Fences rise, even if
-- Redis lost the last one: a fence is Redis's time in microseconds, the last fence + 1, or what the caller knows + 1,
-- whichever is greatest. A lock is never shortened, but for one that would last longer than its holder ever wanted: it
-- was locked while Redis's clock was ahead.
local lock, fence_name = KEYS[2], KEYS[3]
local verb, op, token, hold = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local DAY_MS = 86400000
if is_stale or given and (verb == '1' or given == 2 and verb ~= '0') then return reply('STALE') end

local holder, fence = call('GET', lock), nil
if holder then holder, fence = match(holder, '^(%S+) (%d+)$') end

-- For how long the holder wants the lock, at most, from some moment before now.
local function want(ms)
  redis.pcall('HSET', KEYS[1], '-', ARGV[5] .. ' ' .. ms)
  redis.pcall('PEXPIRE', KEYS[1], format('%.0f', math.max(600000, ms)))
end

local function left()
  local ttl = call('PTTL', lock)
  local who_wants, wanted = match(call('HGET', KEYS[1], '-') or '', '^(%S+) (%d+)$')
  if who_wants ~= holder or ttl <= tonumber(wanted) then return ttl end
  has_written = type(pcall('PEXPIRE', lock, wanted)) == 'number' or has_written
  return tonumber(wanted)
end

if verb == '0' then
  note('2')
  if op == 'L' and holder == token then call('DEL', lock) end
  return reply('OK')
end

if op == 'U' then
  if given == 1 then return reply('OK') end
  if holder == token then call('DEL', lock) end
  note(holder == token and '1' or '0')   -- a repeated request finds that this was done, not that it was refused
  return reply(holder == token and 'OK' or 'GONE')
end

if verb == '2' then note('0') end        -- a copy of it may still come
if op == 'E' then
  if holder ~= token then return reply('GONE') end
  local lasts = left()
  if lasts < hold then
    call('PEXPIRE', lock, ARGV[6])
    want(ARGV[6])
    lasts = hold
  end
  return reply('OK', fence, lasts)
end

if holder then return reply(holder == token and 'OK' or 'HELD', fence, left()) end
local before = call('GET', fence_name)
fence = math.max(now_s * 1000000 + time[2], before and before + 1 or 0, (ARGV[7] or '0') + 1)
fence = format('%.0f', fence)
call('SET', fence_name, fence, 'PX', format('%.0f', hold + DAY_MS))
call('SET', lock, token .. ' ' .. fence, 'PX', ARGV[6])
want(ARGV[6])
return {ARGV[2], 'OK', fence, hold}
