-- hold.lua -- at most so many at once: who is in flight under one key.   engine/hold.c and sync/parts.c ask it.
--
-- KEYS     those in flight (sorted sets): "instance:number" -> ms of TIME at which it is taken for dead. One; of state any number
-- ARGV     1 to 3 as sync/ask.h has them; 4 what: hold, release, state; 5 life in ms; 6 limit (of hold); 7.. a member for each
--          of KEYS
-- Answers  {ARGV[2], status, how many are in flight under the last of KEYS}
--          hold      OK      in flight, or had been by this name: asking again changes nothing;  DENIED
--          release   OK      not in flight (any more)
--          state     OK      each is, whether it had been taken for dead or not
--
-- Always true: every member ends, unless its engine says again that it lives; the set ends with the last of them.
local call = redis.call
local what, life = ARGV[4], ARGV[5]

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function hold(holds, member)
  call('ZADD', holds, now + life, member)
  if call('PTTL', holds) < tonumber(life) then call('PEXPIRE', holds, life) end
end

local holds, member = KEYS[1], ARGV[7]
call('ZREMRANGEBYSCORE', holds, '-inf', now)
if what == 'release' then
  call('ZREM', holds, member)
elseif what == 'state' then
  for i = 1, #KEYS do hold(KEYS[i], ARGV[6 + i]) end
elseif not call('ZSCORE', holds, member) and call('ZCARD', holds) >= tonumber(ARGV[6]) then
  return {ARGV[2], 'DENIED', call('ZCARD', holds)}
else
  hold(holds, member)
end
return {ARGV[2], 'OK', call('ZCARD', KEYS[#KEYS])}
