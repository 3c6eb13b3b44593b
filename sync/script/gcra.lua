-- gcra.lua -- decides one call of a strict limit that is a rate with a burst (TW_SHAPE_GCRA), and charges it once,
-- however often it is requested.
-- In front: calls.lua
--
-- The limit is a bucket that drains evenly, `limit` units per window, and holds at most `burst`. The only stored state
-- is one moment: when the bucket will be empty. n units move this moment by n / limit windows.
--
-- KEYS[1]  the calls of this bucket, as in calls.lua: given are the units. The fourth word is the moment at which the
--          bucket would have been empty after the call. "-": the microseconds that were ever taken back; each moment of
--          a call is increased by this value as it was then, so these moments have the order of the calls. "=": of the
--          latest that were taken back, "moment:microseconds". Those that came after a call are no time that it drained
-- KEYS[2]  the moment (a string): "us+part/limit", microseconds since 1970 and a fraction of one, under the limit that
--          was in force. "us" is of a version that did not write limits without a fraction: the limit is not known. It
--          expires when the moment has come
-- ARGV     1 to 3 as in calls.lua; 4 units, 5 limit, 6 "1": as many as there are, 7 burst (not above the limit), 8
--          window in ms, 9 for how many more ms a bucket that the caller kept in an outage would not be empty (0: none)
-- Replies  {number, status, units granted, units left, ms until the bucket is empty, ms until these units are there}:
--          numbers at the end that are 0 may be missing. The last is 0 if the units were granted, -1 if they never will
--          be
--          OK, DENIED; BAD: the stored value is no moment; STALE
--          cancel: OK, and what had been granted; KEPT, and the same: the stored value is no moment. Otherwise only OK
--          changes anything
--
-- Always true: nothing is rounded, for numbers up to 2^53 (9007199254740992). A moment is at most one window ahead; if
-- it is further, Redis's clock was set back, or the limit is lower than before. If the stored moment belongs to
-- another limit, the units in the bucket stay the same, and drain at the rate of this call from now on. So the moment
-- moves, also if the call is denied, unless it only looks or can never be granted. What earlier calls were given is
-- not taken back after that. The grant of a call is noted before the moment is written, so a repeated request finds
-- it. A denied call changes nothing else, with two exceptions: it is a repeated request (a copy of it may still come),
-- or the caller knows a later moment than Redis does.
if is_stale then return reply('STALE') end
local n, limit, burst, window = ARGV[4] + 0, ARGV[5] + 0, ARGV[7] + 0, ARGV[8] * 1000
local parts = limit > 1 and limit or 1   -- of a microsecond
local now = now_s * 1000000 + time[2]

-- Returns a * b / c and the remainder; a is at most c. If the product is too large for a number, computes bit by bit.
local function share(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  local whole, rest, bit = 0, 0, 9007199254740992
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

-- The moment that a text states: microseconds, the fraction, its limit; nil: none.
local function read(stored, window, parts)
  local us, rest = string.match(stored, '^(%d+)(.*)$')
  if not us or us + window > 9007199254740992 then return nil end
  if rest == '' then return us + 0, 0, parts end
  local part, of = string.match(rest, '^%+(%d+)/(%d+)$')
  part, of = tonumber(part), tonumber(of)
  if not part or part >= of or of > 9007199254740992 then return nil end
  return us + 0, part, of
end

local at, part, of = 0, 0, parts         -- the moment: long ago
local value = pcall('GET', KEYS[2])
if value then
  if type(value) == 'string' then at, part, of = read(value, window, parts) else at = nil end
end
local later = false                      -- the moment differs from the stored one: write it in any case
if at and at - now >= window and (at - now > window or part > 0) then at, part, later = now + window, 0, true end

local function moment(us, part, parts)
  return string.format('%.0f+%.0f/%.0f', us, part, parts)
end

-- Redis before 6.2 knows no PXAT.
local function keep(stored, at, part)
  local expiry = math.ceil((part > 0 and at + 1 or at) / 1000)
  if not redis.pcall('SET', KEYS[2], stored, 'PXAT', expiry).err then return true end
  local kept = redis.pcall('SET', KEYS[2], stored)
  redis.pcall('PEXPIREAT', KEYS[2], expiry)
  return not kept.err
end

local taken_back = call('HGET', KEYS[1], '-')
taken_back = taken_back and tonumber(match(taken_back, '^%d+$')) or 0
if taken_back > 9007199254740992 then taken_back = 0 end

-- Takes back the part of this call's units that has not drained since. Since then, the bucket drained for its own time,
-- except for what later calls added. Some of the earlier calls may have been taken back meanwhile, and then it drained
-- sooner.
if ARGV[3] == '0' then
  given = given or 0
  local ahead, ahead_part = read(given > 0 and match(noted, ' (%S+)$') or '', window, parts)
  local moments, came_at = ahead and call('HGET', KEYS[1], '=') or '', ahead
  if at and ahead and of == parts then
    local back, back_part = share(given, window, limit)
    ahead = ahead - taken_back - now
    for us, more in string.gmatch(moments, '(%d+):(%d+)') do
      if us - came_at > 0 then ahead = ahead + more end
    end
    if ahead < back or ahead == back and ahead_part < back_part then back, back_part = ahead, ahead_part end
    if back >= 0 and back <= at - now then
      at, part = at - back, part - back_part
      if part < 0 then at, part = at - 1, part + parts end
      local stored = moment(at, part, parts)
      if not keep(stored, at, part) then call('SET', KEYS[2], stored) end -- which says why
      moments = at > now and format('%.0f:%.0f ', came_at, back + 1) .. string.sub(moments, 1, 16000) or ''
      pcall('HSET', KEYS[1], '-', format('%.0f', taken_back + back + 1), '=', moments)
    end
  end
  note('0')
  return reply((at or given == 0) and 'OK' or 'KEPT', given)
end

if not at then return reply('BAD') end

-- The units of another limit, (at - now + part / of) * of / window, need as many parts of a microsecond as before. They
-- are parts of 1 / limit now.
local drained = 0                        -- so much later than now no earlier call of another limit was empty
if of ~= parts and limit > 0 then
  if at < now then
    part = 0
  else
    drained = at - now + 1
    local rest, of_part = (at - now) % parts, part % parts
    local whole = (at - now - rest) / parts * of
    if whole < window then
      local more
      more, rest = share(rest, of, parts)
      whole = whole + more + (part - of_part) / parts
      if of_part >= parts - rest then
        whole, rest = whole + 1, of_part - (parts - rest)
      else
        rest = rest + of_part
      end
    end
    if whole >= window then whole, rest = window, 0 end
    at, part = now + whole, rest
  end
end

if not given and limit > 0 and ARGV[9] ~= '0' then
  local theirs = now + math.min(ARGV[9] * 1000, window)
  if theirs > now and theirs > at then at, part, later = theirs, 0, true end
end

local left = burst
if at >= now and limit > 0 then          -- a part of a unit counts as a whole one
  local whole, rest = share(at - now, limit, window)
  local more = part % window
  left = math.max(0, burst - (whole + (part - more) / window + math.ceil((rest + more) / window)))
end

local least = ARGV[6] == '1' and math.min(n, 1) or n
local taken = given or n <= left and n or ARGV[6] == '1' and left or 0
later = limit > 0 and (later or drained > 0 and n > 0 and least <= burst)
if not given and drained > 0 and (taken > 0 or later) then
  taken_back = taken_back + drained      -- so what earlier calls were given counts as drained
  pcall('HSET', KEYS[1], '-', format('%.0f', taken_back), '=', '')
  redis.pcall('PEXPIRE', KEYS[1], 660000)
end
if not given and taken > 0 then
  local whole, rest = share(taken, window, limit)
  if at < now then at, part = now, 0 end
  at = at + whole
  if part >= parts - rest then
    at, part = at + 1, part - (parts - rest)
  else
    part = part + rest
  end
  local stored = moment(at, part, parts)
  local after = taken_back == 0 and stored or moment(at + taken_back, part, parts)
  note(taken == n and ARGV[4] or format('%.0f', taken), ' ' .. after)
  if not keep(stored, at, part) then
    note('0')
    return reply('BAD')
  end
  left = left - taken
elseif not given then
  if ARGV[3] == '2' then note('0') end
  if later then keep(moment(at, part, parts), at, part) end
end

local function to_ms(us, some)           -- up
  return math.max(0, math.ceil((us + (some and 1 or 0)) / 1000))
end

local reset = to_ms(at - now, part > 0)
if taken > 0 or n == 0 then return reply('OK', taken, left, reset) end
local retry = -1
if least <= burst then                   -- when the bucket has only burst - least
  local whole, rest = share(burst - least, window, limit)
  retry = to_ms(at - now - whole, part > rest)
end
return reply('DENIED', 0, left, reset, retry)
