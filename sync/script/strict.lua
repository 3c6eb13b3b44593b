-- strict.lua -- decides one call of a strict limit, and charges it once, however often it is requested. See
-- sync/ask/call_text.h.
--
-- KEYS[1]  the calls of this counter (a hash). For each lane, under its name: "number:nonce granted second": its last
--          call, the units granted, and when by Redis's time. The hash lives ten minutes after the last call, and so
--          does each field
-- KEYS[2]  the counter, as batches count it
-- KEYS[3]  the log of a sliding limit (a sorted set). One member for each admitted call: "name:number:nonce:units", at
--          Redis's time in microseconds. Other members have a negated sum as their score, so they come before all
--          times. "+": the sum of the units in the log. "=start": the sum that calls of this window logged; the counter
--          has these units as well. What the counter has beyond that came another way (a fallback, a refund), and
--          counts until the window's end
-- ARGV     1 name of the lane, 2 "number:nonce" of the call, 3 verb: "1" request, "2" repeated request, "0" cancel; 4
--          units, 5 limit, 6 "1": as many as there are, 7 when the counter expires (absolute, ms; 0: never), 8 window
--          in ms if its first count begins it (0: it does not), 9 window in ms if it slides, 10 the window's start
-- Replies  {number, status, units granted, used, ms until all is free, ms until these units are}: the last is 0 if they
--          were granted, -1 if they never will be
--          OK, DENIED; LATE: the window is over here; BAD: the counter is no number; STALE: a later call came already, or one of another life of this process.
--          cancel: OK, and what was taken back. Only OK changes anything
--
-- Always true: the grant of a call is noted before anything else is written, so a repeated request finds it. A denied
-- call changes nothing unless it is a repeated request: only then a copy of it may still come. A store that takes no
-- writes answers nothing: if nothing else is written, a write that changes nothing comes first, and a replica replies
-- READONLY. Nothing in the log is later than now, and no window that its first count begins ends later than its length
-- from now: what is later was written while Redis's clock was ahead, and begins now.
local calls, name, log = KEYS[1], KEYS[2], KEYS[3]
local who, serial, verb = ARGV[1], ARGV[2], ARGV[3]
local n, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local NOTE_MS = 600000
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)
local window_us = tonumber(ARGV[9] or '0') * 1000

local function text(number)
  return string.format('%.0f', number)
end

local wrote = false
local function say(status, taken, used, reset, retry)
  if not wrote then redis.call('HDEL', calls, '') end
  return {serial, status, text(taken), text(used), text(reset), text(retry)}
end

-- From time to time, removes some of the notes that are older than their lifetime: each process adds a field, and the
-- hash of a counter in use would grow for ever.
local function tidy()
  local page = redis.pcall('HSCAN', calls, time[2], 'COUNT', 100)[2] or {}
  for i = 1, #page, 2 do
    local at = string.match(page[i + 1], '^%S+ %d+ (%d+)')
    if at and time[1] - at > NOTE_MS / 1000 then redis.pcall('HDEL', calls, page[i]) end
  end
end

local function note(taken)
  local is_new = redis.call('HSET', calls, who, serial .. ' ' .. text(taken) .. ' ' .. time[1]) == 1
  wrote = true
  redis.pcall('PEXPIRE', calls, NOTE_MS)
  if is_new and time[2] % 8 == 0 then tidy() end
end

local function score(member)
  return -tonumber(redis.call('ZSCORE', log, member) or '0')
end

local function put(member, sum)
  redis.pcall('ZADD', log, text(-sum), member)
end

local function number(call)
  return tonumber(string.match(call, '^%d+') or '0')
end

-- The number of this call with another nonce is that of another life of the same process (call_text.h).
local last, given = string.match(redis.call('HGET', calls, who) or '', '^(%S+) (%d+)')
if last and last ~= serial and number(last) >= number(serial) then return say('STALE', 0, 0, 0, 0) end
local known = last == serial
given = known and tonumber(given) or 0

local value = redis.pcall('GET', name)
local count = not value and 0 or type(value) == 'string' and string.find(value, '^%-?%d+$') and tonumber(value)
local logged = '=' .. (ARGV[10] or '')

if verb == '0' then
  note(0)
  if given == 0 then return say('OK', 0, 0, 0, 0) end
  if count and count > 0 then redis.pcall('INCRBY', name, text(-math.min(given, count))) end
  if log and redis.call('ZREM', log, who .. ':' .. serial .. ':' .. text(given)) == 1 then
    put('+', score('+') - given)
    if redis.call('ZSCORE', log, logged) then put(logged, score(logged) - given) end
  end
  return say('OK', given, 0, 0, 0)
end

if not count then return say('BAD', 0, 0, 0, 0) end
local expiry = tonumber(ARGV[7])
if expiry ~= 0 and expiry <= now then return say('LATE', 0, count, 0, 0) end

-- Redis's clock was ahead: what it logged then is taken for logged now.
local function set_back()
  repeat
    local some = redis.call('ZRANGEBYSCORE', log, text(now_us + 1), '+inf', 'LIMIT', 0, 500)
    for i = 1, #some do redis.call('ZADD', log, text(now_us), some[i]) end
    wrote = wrote or #some > 0
  until #some < 500
end

local used, reset = count, 0
if log then set_back() end
if log then                              -- removes what has slid out of the window from the log
  local sum, page = score('+'), 500
  repeat
    local old = redis.call('ZRANGEBYSCORE', log, 1, text(now_us - window_us), 'LIMIT', 0, page)
    for i = 1, #old do sum = sum - (tonumber(string.match(old[i], '%d+$') or '') or 0) end
    if #old > 0 then
      redis.call('ZREM', log, unpack(old))
      put('+', sum)
    end
  until #old < page
  used = math.max(0, sum + count - score(logged))
end

local function all_free()
  if log then
    local newest = redis.call('ZREVRANGE', log, 0, 0, 'WITHSCORES')[2]
    return newest and tonumber(newest) > 0 and math.ceil((newest + window_us - now_us) / 1000) or 0
  end
  local ttl = ARGV[8] ~= '0' and redis.call('PTTL', name) or -1
  if ttl > tonumber(ARGV[8]) then
    ttl = tonumber(ARGV[8])
    wrote = type(redis.pcall('PEXPIRE', name, ARGV[8])) == 'number' or wrote
  end
  return ttl >= 0 and ttl or tonumber(ARGV[8])
end

local function these_free()              -- when enough of the oldest have slid out
  local least = ARGV[6] == '1' and math.min(n, 1) or n
  if least > limit then return -1 end
  if not log then return all_free() end
  local missing, at, page = least - (limit - used), 0, 200
  repeat
    local some = redis.call('ZRANGEBYSCORE', log, 1, '+inf', 'WITHSCORES', 'LIMIT', at, page)
    for i = 1, #some, 2 do
      missing = missing - (tonumber(string.match(some[i], '%d+$') or '') or 0)
      if missing <= 0 then return math.ceil((some[i + 1] + window_us - now_us) / 1000) end
    end
    at = at + page
  until #some < 2 * page
  return math.max(0, math.ceil((ARGV[10] * 1000 + window_us - now_us) / 1000))
end

if known then
  local free = given > 0 or n == 0
  return say(free and 'OK' or 'DENIED', given, used, all_free(), free and 0 or these_free())
end

-- A sum could be above 2^53, where numbers have gaps: limit - used is exact for each use that leaves room.
local taken = n <= limit - used and n or ARGV[6] == '1' and math.max(0, math.min(n, limit - used)) or 0
if taken == 0 then
  if verb == '2' then note(0) end
  local free = n == 0 and used <= limit
  return say(free and 'OK' or 'DENIED', 0, used, all_free(), free and 0 or these_free())
end

note(taken)
if type(redis.pcall('INCRBY', name, text(taken))) ~= 'number' then
  note(0)
  return say('BAD', 0, count, 0, 0)
end
if ARGV[8] ~= '0' then expiry = now + ARGV[8] end
if expiry ~= 0 and redis.pcall('PTTL', name) == -1 then redis.pcall('PEXPIREAT', name, text(expiry)) end
if log then
  redis.pcall('ZADD', log, text(now_us), who .. ':' .. serial .. ':' .. text(taken))
  put('+', score('+') + taken)
  local before = redis.call('ZSCORE', log, logged)
  put(logged, (before and -before or 0) + taken)
  if not before then                     -- removes the sums of windows that are long over
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', log, '-inf', 0)) do
      local start = tonumber(string.match(member, '^=(%-?%d+)$') or '')
      if start and start < ARGV[10] - 2 * ARGV[9] then redis.pcall('ZREM', log, member) end
    end
  end
  redis.pcall('PEXPIRE', log, ARGV[9])
end
return say('OK', taken, used + taken, all_free(), 0)
