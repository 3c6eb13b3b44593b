-- once.lua -- tells exactly one caller that it is the first (tw_once() of a strict family), or cancels that. See
-- sync/ask/call_text.h.
--
-- KEYS[1]  the calls of this counter (a hash), as in strict.lua
-- KEYS[2]  the first caller (a string): the token of its call. It lives as long as the counter
-- KEYS[3]  the counter: 1 from then on
-- ARGV     1 name of the lane, 2 "number:nonce" of the call, 3 verb: "1" request, "2" repeated request, "0" cancel; 4 "O"
--          once or "C" cancel, 5 token, 6 when the counter expires (absolute, ms; 0: never), 7 window in ms if its
--          first count begins it (0: it does not)
-- Replies  {number, status}: FIRST, SECOND; OK (cancelled); LATE: the window is over here; BAD: the counter is no
--          number; STALE: a later call came already
--
-- Always true: the token is written first, so a repeated request with the same token is still the first (trap L10). A
-- store that takes no writes answers nothing, as in strict.lua.
local calls, once, name = KEYS[1], KEYS[2], KEYS[3]
local who, serial, verb, token = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local NOTE_MS = 600000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local wrote = false
local function say(status)
  if not wrote then redis.call('HDEL', calls, '') end
  return {serial, status}
end

-- As in strict.lua.
local function tidy()
  local page = redis.pcall('HSCAN', calls, time[2], 'COUNT', 100)[2] or {}
  for i = 1, #page, 2 do
    local at = string.match(page[i + 1], '^%S+ %d+ (%d+)')
    if at and time[1] - at > NOTE_MS / 1000 then redis.pcall('HDEL', calls, page[i]) end
  end
end

local function number(call)
  return tonumber(string.match(call, '^%d+') or '0')
end

local last = string.match(redis.call('HGET', calls, who) or '', '^(%S+) ') or '0'
local is_known = last == serial
if not is_known and number(last) >= number(serial) or verb == '1' and is_known then return say('STALE') end
if verb ~= '1' then                      -- a copy of it may still come
  local is_new = redis.call('HSET', calls, who, serial .. ' 0 ' .. time[1]) == 1
  wrote = true
  redis.pcall('PEXPIRE', calls, NOTE_MS)
  if is_new and time[2] % 8 == 0 then tidy() end
end

local value = redis.pcall('GET', name)
local count = not value and 0 or type(value) == 'string' and string.find(value, '^%-?%d+$') and tonumber(value)
local first = redis.call('GET', once)

if verb == '0' then
  if ARGV[4] == 'O' and first == token then
    redis.call('DEL', once)
    if count and count > 0 then redis.pcall('INCRBY', name, -1) end
  end
  return say('OK')
end

if not count then return say('BAD') end

if ARGV[4] == 'C' then
  redis.call('DEL', once)
  wrote = true
  if count > 0 then redis.pcall('INCRBY', name, string.format('%.0f', -count)) end
  return say('OK')
end

if first then return say(first == token and 'FIRST' or 'SECOND') end
if count > 0 then return say('SECOND') end
local expiry = tonumber(ARGV[6])
if ARGV[7] ~= '0' then expiry = now + ARGV[7] end
if expiry ~= 0 and expiry <= now then return say('LATE') end
redis.call('SET', once, token)
wrote = true
redis.pcall('INCRBY', name, string.format('%.0f', 1 - count))
if expiry ~= 0 then
  redis.pcall('PEXPIREAT', once, string.format('%.0f', expiry))
  if redis.pcall('PTTL', name) == -1 then redis.pcall('PEXPIREAT', name, string.format('%.0f', expiry)) end
end
return say('FIRST')
