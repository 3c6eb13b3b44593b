-- lock.lua -- one holder at a time, for a limited time (tw_lock(), tw_lock_extend(), tw_lock_release()). See
-- sync/ask/call_text.h.
--
-- KEYS[1]  the calls (a hash), as in strict.lua; and under "-" for how long the holder wants the lock: "token ms". It
--          lives as long as the lock at least
-- KEYS[2]  the lock (a string): "token fence"; it expires when the lease of the lock ends
-- KEYS[3]  the last fencing token (a string); kept a day longer than any lock
-- ARGV     1 name of the lane, 2 "number:nonce" of the call, 3 verb: "1" request, "2" repeated request, "0" cancel; 4 "L"
--          lock, "E" extend, "U" unlock; 5 token, 6 lease time in ms, 7 a fence that the next one is above: the
--          greatest that the caller knows, or the latest moment by Redis's clock that it knows
-- Replies  {number, status, fence, ms that the lock lasts}: OK; HELD by another, whose fence it is; GONE: not held under
--          this token (any more); STALE: a later call came already
--
-- Always true: a repeated request with the same token still holds the lock, under the same fence. Fences rise, even if
-- Redis lost the last one: a fence is Redis's time in microseconds, the last fence + 1, or what the caller knows + 1,
-- whichever is greatest. A lock is never shortened, but for one that would last longer than its holder ever wanted: it
-- was locked while Redis's clock was ahead. A store that takes no writes answers nothing, as in strict.lua.
local calls, lock, fence_name = KEYS[1], KEYS[2], KEYS[3]
local who, serial, verb, op, token, hold = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local NOTE_MS, DAY_MS = 600000, 86400000
local time = redis.call('TIME')

local wrote = false
local function say(status, fence, left)
  if not wrote then redis.call('HDEL', calls, '') end
  return {serial, status, fence or '0', tostring(left or 0)}
end

-- As in strict.lua.
local function tidy()
  local page = redis.pcall('HSCAN', calls, time[2], 'COUNT', 100)[2] or {}
  for i = 1, #page, 2 do
    local at = string.match(page[i + 1], '^%S+ %d+ (%d+)')
    if at and time[1] - at > NOTE_MS / 1000 then redis.pcall('HDEL', calls, page[i]) end
  end
end

local function note(what)
  local is_new = redis.call('HSET', calls, who, serial .. ' ' .. what .. ' ' .. time[1]) == 1
  wrote = true
  redis.pcall('PEXPIRE', calls, NOTE_MS)
  if is_new and time[2] % 8 == 0 then tidy() end
end

local function number(call)
  return tonumber(string.match(call, '^%d+') or '0')
end

local last, done = string.match(redis.call('HGET', calls, who) or '', '^(%S+) (%d+)')
local is_known = last == serial
if last and not is_known and number(last) >= number(serial) then return say('STALE') end
if verb == '1' and is_known then return say('STALE') end
local unlocked = is_known and done == '1'
local holder, fence = string.match(redis.call('GET', lock) or '', '^(%S+) (%d+)$')

-- For how long the holder wants the lock, at most, from some moment before now.
local function want(ms)
  redis.pcall('HSET', calls, '-', token .. ' ' .. ms)
  redis.pcall('PEXPIRE', calls, string.format('%.0f', math.max(NOTE_MS, tonumber(ms))))
end

local function left()
  local ttl = redis.call('PTTL', lock)
  local who_wants, wanted = string.match(redis.call('HGET', calls, '-') or '', '^(%S+) (%d+)$')
  if who_wants ~= holder or ttl <= tonumber(wanted) then return ttl end
  wrote = type(redis.pcall('PEXPIRE', lock, wanted)) == 'number' or wrote
  return tonumber(wanted)
end

if verb == '0' then
  note(0)
  if op == 'L' and holder == token then redis.call('DEL', lock) end
  return say('OK')
end

if op == 'U' then
  if unlocked then return say('OK') end
  note(holder == token and 1 or 0)       -- a repeated request finds that this was done
  if holder ~= token then return say('GONE') end
  redis.call('DEL', lock)
  return say('OK')
end

if verb == '2' then note(0) end          -- a copy of it may still come
if op == 'E' then
  if holder ~= token then return say('GONE') end
  if left() < hold then
    redis.call('PEXPIRE', lock, ARGV[6])
    want(ARGV[6])
  end
  return say('OK', fence, redis.call('PTTL', lock))
end

if holder then return say(holder == token and 'OK' or 'HELD', fence, left()) end
local now_us = time[1] * 1000000 + time[2]
fence = math.max(now_us, tonumber(redis.call('GET', fence_name) or '0') + 1, tonumber(ARGV[7] or '0') + 1)
fence = string.format('%.0f', fence)
redis.call('SET', fence_name, fence, 'PX', string.format('%.0f', hold + DAY_MS))
redis.call('SET', lock, token .. ' ' .. fence, 'PX', ARGV[6])
want(ARGV[6])
wrote = true
return say('OK', fence, hold)
