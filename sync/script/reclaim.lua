-- reclaim.lua -- frees what an engine that is gone was granted and never spent, for tw_reclaim(). One page of leases a call.
-- See lease.lua for what they hold.
--
-- KEYS[1]  the epoch (leases.lua): when the engine was last heard of
-- ARGV     1..3 of the connection (sync/ask.h), not needed: saying it twice frees nothing twice; 4 instance, 5 SCAN's cursor,
--          6 SCAN's pattern
-- Answers  {number, status, cursor, units freed}: OK; ALIVE it was heard of within 5 s, nothing was done
--
-- Always true: what it said to be spent stays spent; what it spent and did not say is freed, too: the caller knows that it is
-- gone. Should it come back all the same, it may sell those units a second time.
local ALIVE_MS = 5000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local who = ARGV[4]
local heard = redis.call('HGET', KEYS[1], 'i:' .. who)
if heard and now - tonumber(heard) <= ALIVE_MS then return {ARGV[2], 'ALIVE', '0', 0} end

local page = redis.call('SCAN', ARGV[5], 'MATCH', ARGV[6], 'COUNT', 500)
local freed = 0
for i = 1, #page[2] do
  local name = page[2][i]
  local mine = redis.pcall('HGET', name, who)
  local conn, granted, returned, spent, risk =
    string.match(type(mine) == 'string' and mine or '', '^(%d+) (%d+) (%d+) (-?%d+) (%d+)$')
  local units = conn and tonumber(granted) - tonumber(returned) - tonumber(spent) or 0
  if units > 0 then
    local total = tonumber(redis.call('HGET', name, 't') or '0')
    returned = string.format('%.0f', tonumber(returned) + units)
    redis.call('HSET', name, who, table.concat({conn, granted, returned, spent, risk}, ' '), 't',
      string.format('%.0f', total - units))
    freed = freed + units
  end
end
return {ARGV[2], 'OK', page[1], string.format('%.0f', freed)}
