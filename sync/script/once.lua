-- once.lua -- lets exactly one caller be the first (tw_once() of a strict family), or cancels that.
-- In front: calls.lua
--
-- KEYS[1]  the calls of this counter, as in calls.lua: only those that were requested twice (given is 0), cancels of a
--          first caller that were executed (1), and calls that were taken back (2)
-- KEYS[2]  the first caller (a string): the token of its call. It lives as long as the counter
-- KEYS[3]  the counter: 1 from then on
-- ARGV     1 to 3 as in calls.lua; 4 "O" once or "C" cancel, 5 token, 6 when the counter expires (absolute, ms; 0:
--          never), 7 window in ms if its first count begins it (0: it does not)
-- Replies  {number, status}: FIRST, SECOND; OK (cancelled); LATE: the window is over here; BAD: the counter is no
--          number; STALE
--
-- Always true: the token is written first, so a repeated request with the same token is still the first (trap L10).
local once, name, verb, token = KEYS[2], KEYS[3], ARGV[3], ARGV[5]
if ARGV[4] == 'C' and given == 1 and verb ~= '0' then return reply('OK') end
if is_stale or given and (verb == '1' or given == 2 and verb ~= '0') then return reply('STALE') end
if verb ~= '1' then note(verb == '0' and '2' or '0') end -- a copy of it may still come

local value, count = pcall('GET', name), 0
if value then count = type(value) == 'string' and match(value, '^%-?%d+$') and tonumber(value) end
local first = call('GET', once)

if verb == '0' then
  if ARGV[4] == 'O' and first == token then
    if count and count > 0 then call('INCRBY', name, 0) end -- or nothing is done
    call('DEL', once)
    if count and count > 0 then call('INCRBY', name, -1) end
  end
  return reply('OK')
end

if not count then return reply('BAD') end

if ARGV[4] == 'C' then
  note('0')                              -- by then another caller may be the first, so it is done once
  call('DEL', once)
  if count > 0 then call('INCRBY', name, format('%.0f', -count)) end
  note('1')
  return reply('OK')
end

if first then return reply(first == token and 'FIRST' or 'SECOND') end
if count > 0 then return reply('SECOND') end
local now, expiry = now_s * 1000 + math.floor(time[2] / 1000), ARGV[6] + 0
if ARGV[7] ~= '0' then expiry = now + ARGV[7] end
if expiry == 0 then
  call('SET', once, token)
elseif expiry <= now then
  return reply('LATE')
else
  call('SET', once, token, 'PX', format('%.0f', expiry - now))
end
pcall('INCRBY', name, format('%.0f', 1 - count))
if expiry ~= 0 and (not value or pcall('PTTL', name) == -1) then pcall('PEXPIREAT', name, format('%.0f', expiry)) end
return {ARGV[2], 'FIRST'}
