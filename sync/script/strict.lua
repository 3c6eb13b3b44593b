-- strict.lua -- decides one call of a strict limit, and charges it once, however often it is requested.
-- In front: calls.lua
--
-- KEYS[1]  the calls of this counter, as in calls.lua: given are the units granted
-- KEYS[2]  the counter, as batches count it
-- KEYS[3]  the log of a sliding limit (a sorted set). One member for each admitted call: "name:number:nonce:units", at
--          Redis's time in microseconds. Other members have a negated sum as their score, so they come before all
--          times. "+": the sum of the units in the log. "=start": the sum that calls of this window logged; the counter
--          has these units as well. What the counter has beyond that came another way (a fallback, a refund), and
--          counts until the window's end
-- ARGV     1 to 3 as in calls.lua; 4 units, 5 limit, 6 "1": as many as there are, 7 when the counter expires (absolute,
--          ms; 0: never), 8 window in ms if its first count begins it (0: it does not); and with a log: 9 window in ms,
--          10 the window's start
-- Replies  {number, status, units granted, used, ms until all is free, ms until these units are}: numbers at the end
--          that are 0 may be missing. The last is 0 if the units were granted, -1 if they never will be
--          OK, DENIED; LATE: the window is over here; BAD: the counter is no number; STALE
--          cancel: OK, and what was taken back; KEPT, and what was not: the counter is no number. Otherwise only OK
--          changes anything
--
-- Always true: the grant of a call is noted before it is charged, so a repeated request finds it. A denied call changes
-- nothing unless it is a repeated request: only then a copy of it may still come. Nothing in the log is later than now,
-- and no window that its first count begins ends later than its length from now: what is later was written while
-- Redis's clock was ahead, and begins now. A counter gets its expiry with its first count. A lane that comes for the
-- first time sees whether it has one.
local name, log, verb = KEYS[2], KEYS[3], ARGV[3]
local n, limit, expiry, from_first = ARGV[4] + 0, ARGV[5] + 0, ARGV[7], ARGV[8] ~= '0'
if is_stale then return reply('STALE') end

local value = pcall('GET', name)
local count = 0                          -- false: it is no number
if value then count = type(value) == 'string' and match(value, '^%-?%d+$') and tonumber(value) end

if verb == '0' then
  local units = given or 0
  if units > 0 and log then
    call('ZREM', log, '')
    call('ZADD', log, 'XX', 0, '')
  end
  if units > 0 and count and count > 0 then call('INCRBY', name, format('%.0f', -math.min(units, count))) end
  note('0')
  if units == 0 then return reply('OK') end
  if log and call('ZREM', log, ARGV[1] .. ':' .. ARGV[2] .. ':' .. format('%.0f', given)) == 1 then
    for _, member in ipairs({'+', '=' .. ARGV[10]}) do
      local sum = call('ZSCORE', log, member)
      if sum then pcall('ZADD', log, format('%.0f', sum + given), member) end
    end
  end
  return reply(count and 'OK' or 'KEPT', format('%.0f', given))
end

if not count then return reply('BAD') end
if expiry ~= '0' and expiry - now_s * 1000 < 1000 and expiry - now_s * 1000 <= time[2] / 1000 then
  return reply('LATE', 0, format('%.0f', count))
end

local used = count
local charge_log, log_is_free            -- functions of a sliding limit
if log then
  local now_us, window_us = now_s * 1000000 + time[2], ARGV[9] * 1000
  local ours, sum, logged = '=' .. ARGV[10], 0, nil
  local newest = call('ZREVRANGE', log, 0, 0, 'WITHSCORES')[2]
  newest = newest and tonumber(newest)
  while newest and newest > now_us do    -- Redis's clock was ahead: what it logged then counts as logged now
    local some = call('ZRANGEBYSCORE', log, '(' .. format('%.0f', now_us), '+inf', 'LIMIT', 0, 500)
    for i = 1, #some do call('ZADD', log, format('%.0f', now_us), some[i]) end
    has_written = true
    if #some < 500 then newest = now_us end
  end

  local function units(member)
    return tonumber(match(member, '%d+$') or '') or 0
  end

  local over = {}                        -- sums of windows that are long over
  while newest do                        -- reads the sums, and removes what has slid out of the window
    local until_us, old, size = format('%.0f', now_us - window_us), {}, 0
    local page = call('ZRANGEBYSCORE', log, '-inf', until_us, 'WITHSCORES', 'LIMIT', 0, 500)
    for i = 1, #page, 2 do
      local member, score = page[i], tonumber(page[i + 1])
      if score > 0 then
        size = size + 1
        old[size] = member
      elseif member == '+' then sum = -score
      elseif member == ours then logged = -score
      else
        local start = tonumber(match(member, '^=(%-?%d+)$') or '')
        if start and start < ARGV[10] - 2 * ARGV[9] then over[#over + 1] = member end
      end
    end
    if size > 0 then
      for i = 1, size do sum = sum - units(old[i]) end
      call('ZREM', log, unpack(old))
      pcall('ZADD', log, format('%.0f', -sum), '+')
    end
    if #page < 1000 then break end
    over = {}
  end
  used = math.max(0, sum + count - (logged or 0))

  charge_log = function(taken)
    pcall('ZADD', log, format('%.0f', now_us), ARGV[1] .. ':' .. ARGV[2] .. ':' .. taken,
      format('%.0f', -sum - taken), '+', format('%.0f', -(logged or 0) - taken), ours)
    newest = now_us
    if not logged and over[1] then pcall('ZREM', log, unpack(over)) end
    pcall('PEXPIRE', log, ARGV[9])
  end

  -- ms until nothing is left in the window; with `missing`, until so many units have slid out of it
  log_is_free = function(missing)
    if not missing then return newest and newest > 0 and math.ceil((newest + window_us - now_us) / 1000) or 0 end
    for at = 0, math.huge, 200 do
      local some = call('ZRANGEBYSCORE', log, 1, '+inf', 'WITHSCORES', 'LIMIT', at, 200)
      for i = 1, #some, 2 do
        missing = missing - units(some[i])
        if missing <= 0 then return math.ceil((some[i + 1] + window_us - now_us) / 1000) end
      end
      if #some < 400 then break end
    end
    return math.max(0, math.ceil((ARGV[10] * 1000 + window_us - now_us) / 1000))
  end
end

-- A sum could be above 2^53, where numbers have gaps: limit - used is exact for each use that leaves room.
local taken = given or 0
if not given then
  taken = n <= limit - used and n or ARGV[6] == '1' and math.max(0, math.min(n, limit - used)) or 0
  if taken > 0 then
    local units = taken == n and ARGV[4] or format('%.0f', taken)
    local is_new = note(units)
    local sum = pcall('INCRBY', name, units)
    if type(sum) ~= 'number' then
      note('0')
      return reply('BAD', 0, format('%.0f', count))
    end
    if from_first then expiry = format('%.0f', now_s * 1000 + math.floor(time[2] / 1000) + ARGV[8]) end
    if expiry ~= '0' and (not value or is_new == 1 and pcall('PTTL', name) == -1) then
      pcall('PEXPIREAT', name, expiry)
    end
    if log then charge_log(units) end
    if not log and not from_first then return {ARGV[2], 'OK', units, sum} end
    used = used + taken
  elseif verb == '2' then
    note('0')
  end
end

local reset = 0
if log then
  reset = log_is_free()
elseif from_first then
  local window = ARGV[8] + 0
  reset = call('PTTL', name)
  if reset > window then has_written = type(pcall('PEXPIRE', name, ARGV[8])) == 'number' or has_written end
  if reset < 0 or reset > window then reset = window end
end

if taken > 0 or n == 0 and (given or used <= limit) then
  return reply('OK', format('%.0f', taken), format('%.0f', used), reset)
end
local least = ARGV[6] == '1' and math.min(n, 1) or n
local retry = reset
if least > limit then retry = -1 elseif log then retry = log_is_free(least - (limit - used)) end
return reply('DENIED', 0, format('%.0f', used), reset, retry)
