-- gcra.lua -- decides one call of a strict limit that is a rate with a burst (TW_SHAPE_GCRA), and charges it once,
-- however often it is requested. See sync/ask/call_text.h.
--
-- The limit is a bucket that drains evenly, `limit` units per window, and holds at most `burst`. The only stored state
-- is one moment: when the bucket will be empty. n units move this moment by n / limit windows.
--
-- KEYS[1]  the calls of this bucket (a hash). For each lane, under its name: "number:nonce units second moment": its
--          last call, the units granted, when, and when the bucket would have been empty after it. "-": the
--          microseconds that were ever taken back; each stored moment is increased by this value as it was then. The
--          hash lives ten minutes after the last call, and so does each field
-- KEYS[2]  the moment (a string): "us", microseconds since 1970, or "us+part/parts", with a fraction of one. It expires
--          when the moment has come
-- ARGV     1 name of the lane, 2 "number:nonce" of the call, 3 verb: "1" request, "2" repeated request, "0" cancel; 4
--          units, 5 limit, 6 "1": as many as there are, 7 burst (not above the limit), 8 window in ms, 9 for how many
--          more ms a bucket that the caller kept in an outage would not be empty (0: none)
-- Replies  {number, status, units granted, units left, ms until the bucket is empty, ms until these units are there}:
--          the last is 0 if they were granted, -1 if they never will be
--          OK, DENIED; BAD: the stored value is no moment; STALE: a later call came already
--          cancel: OK, and what had been granted. Only OK changes anything
--
-- Always true: nothing is rounded, for numbers up to 2^53. If the stored moment belongs to another limit, its fraction
-- is rounded up to the next 1/limit of a microsecond. A moment is at most one window ahead; if it is further, Redis's
-- clock was set back. The grant of a call is noted before the moment is written, so a repeated request finds it. A
-- denied call changes nothing, with two exceptions: it is a repeated request (a copy of it may still come), or the
-- caller knows a later moment than Redis does. A store that takes no writes answers nothing, as in strict.lua.
local calls, bucket = KEYS[1], KEYS[2]
local who, serial, verb = ARGV[1], ARGV[2], ARGV[3]
local n, limit, burst = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local window = ARGV[8] * 1000
local parts = math.max(limit, 1)         -- of a microsecond
local NOTE_MS, EXACT = 600000, 2^53
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function text(number)
  return string.format('%.0f', number)
end

local wrote = false
local function answer(status, taken, left, reset, retry)
  if not wrote then redis.call('HDEL', calls, '') end
  return {serial, status, text(taken), text(left), text(reset), text(retry)}
end

-- Returns a * b / c and the remainder; a is at most c. If the product is too large for a number, computes bit by bit.
local function share(a, b, c)
  local product = a * b
  if product < EXACT then
    local rest = math.fmod(product, c)
    return (product - rest) / c, rest
  end
  local whole, rest, bit = 0, 0, EXACT
  while bit >= 1 do
    if rest >= c - rest then
      whole, rest = 2 * whole + 1, rest - (c - rest)
    else
      whole, rest = 2 * whole, 2 * rest
    end
    if b >= bit then
      b = b - bit
      if rest >= c - a then
        whole, rest = whole + 1, rest - (c - a)
      else
        rest = rest + a
      end
    end
    bit = bit / 2
  end
  return whole, rest
end

-- The moment that a text states; nil: none.
local function read(stored)
  local us, part, of = string.match(stored, '^(%d+)%+(%d+)/(%d+)$')
  us, part, of = tonumber(us or string.match(stored, '^%d+$')), tonumber(part or 0), tonumber(of or 1)
  if not us or us + window > EXACT or part >= of or of > EXACT then return nil end
  if of == parts then return us, part end
  local whole, rest = share(part, parts, of)
  if rest > 0 then whole = whole + 1 end
  if whole == parts then return us + 1, 0 end
  return us, whole
end

local at, part = 0, 0                    -- the moment: long ago
local value = redis.pcall('GET', bucket)
if type(value) == 'string' then
  at, part = read(value)
elseif type(value) == 'table' then
  at = nil
end
local later = false                      -- the moment differs from the stored one: write it in any case
if at and (at - now > window or at - now == window and part > 0) then at, part, later = now + window, 0, true end

local function moment(us)
  return part == 0 and text(us) or text(us) .. '+' .. text(part) .. '/' .. text(parts)
end

local function keep()
  local kept = redis.pcall('SET', bucket, moment(at))
  redis.pcall('PEXPIREAT', bucket, text(math.ceil((at + (part > 0 and 1 or 0)) / 1000)))
  return not kept.err
end

local call_before = redis.call('HMGET', calls, who, '-')
local taken_back = tonumber(string.match(call_before[2] or '', '^%d+$') or '0')
if taken_back > EXACT then taken_back = 0 end

-- As in strict.lua.
local function tidy()
  local page = redis.pcall('HSCAN', calls, time[2], 'COUNT', 100)[2] or {}
  for i = 1, #page, 2 do
    local second = string.match(page[i + 1], '^%S+ %d+ (%d+)')
    if second and time[1] - second > NOTE_MS / 1000 then redis.pcall('HDEL', calls, page[i]) end
  end
end

local function note(taken)
  local fields = {serial, text(taken), time[1], taken > 0 and moment(at + taken_back) or nil}
  local is_new = redis.call('HSET', calls, who, table.concat(fields, ' ')) == 1
  wrote = true
  redis.pcall('PEXPIRE', calls, NOTE_MS)
  if is_new and time[2] % 8 == 0 then tidy() end
end

local function number(call)
  return tonumber(string.match(call, '^%d+') or '0')
end

local last, given, after = string.match(call_before[1] or '', '^(%S+) (%d+) %d+ ?(%S*)$')
if last and last ~= serial and number(last) >= number(serial) then return answer('STALE', 0, 0, 0, 0) end
local known = last == serial
given = known and tonumber(given) or 0

-- Takes back the part of this call's units that has not drained since. Since then, the bucket drained for its own time,
-- except for what later calls added. Some of the earlier calls may have been taken back meanwhile, and then it drained
-- sooner.
if verb == '0' then
  local ahead, ahead_part = read(after or '')
  note(0)
  if given > 0 and at and ahead then
    local back, back_part = share(given, window, limit)
    ahead = ahead - taken_back - now
    if ahead < back or ahead == back and ahead_part < back_part then back, back_part = ahead, ahead_part end
    if back >= 0 and back <= at - now then
      at, part = at - back, part - back_part
      if part < 0 then at, part = at - 1, part + parts end
      keep()
      redis.pcall('HSET', calls, '-', text(taken_back + back + 1))
    end
  end
  return answer('OK', given, 0, 0, 0)
end

if not at then return answer('BAD', 0, 0, 0, 0) end
if not known then
  local theirs = now + math.min(ARGV[9] * 1000, window)
  if theirs > now and theirs > at then at, part, later = theirs, 0, true end
end

local function used()                    -- units; a part of a unit counts as a whole one
  if at < now or limit == 0 then return 0 end
  local whole, rest = share(at - now, limit, window)
  local more = math.fmod(part, window)
  return whole + (part - more) / window + math.ceil((rest + more) / window)
end

local function to_ms(us, some)           -- up
  return math.max(0, math.ceil((us + (some and 1 or 0)) / 1000))
end

local function all_free()
  return to_ms(at - now, part > 0)
end

local function these_free()              -- when the bucket has only burst - n
  local least = ARGV[6] == '1' and math.min(n, 1) or n
  if least > burst then return -1 end
  local whole, rest = share(burst - least, window, limit)
  return to_ms(at - now - whole, part > rest)
end

local left = math.max(0, burst - used())
if known then
  local free = given > 0 or n == 0
  return answer(free and 'OK' or 'DENIED', given, left, all_free(), free and 0 or these_free())
end

local taken = n <= left and n or ARGV[6] == '1' and left or 0
if taken == 0 then
  if verb == '2' then note(0) end
  if later then keep() end
  return answer(n == 0 and 'OK' or 'DENIED', 0, left, all_free(), n == 0 and 0 or these_free())
end

local whole, rest = share(taken, window, limit)
if at < now then at, part = now, 0 end
at = at + whole
if part >= parts - rest then
  at, part = at + 1, part - (parts - rest)
else
  part = part + rest
end
note(taken)
if not keep() then
  note(0)
  return answer('BAD', 0, 0, 0, 0)
end
return answer('OK', taken, left - taken, all_free(), 0)
