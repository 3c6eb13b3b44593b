-- reclaim.lua -- frees what a dead engine was granted and never spent, for tw_lease_reclaim(): first the names of all
-- leases page by page, then each lease. lease.lua describes what they hold.
--
-- KEYS[1]  the epoch (leases.lua): when the engine was last heard of
-- KEYS[2].. of free: leases
-- ARGV     1..3 of the connection (sync/ask/pool.h), not used: repeating the call frees nothing twice; 4 what: list,
--          free; 5 instance;
--          of list: 6 SCAN's cursor, 7 SCAN's pattern
-- Replies  {number, status, ...}: OK; ALIVE: it was heard of within 5 s, nothing was done. After OK
--          list      cursor, names, each as "size:name"
--          free      units freed, in sum
--
-- Always true: what the engine reported as spent stays spent. What it spent and did not report is freed, too: the
-- caller knows that the engine is dead. If the engine returns all the same, it may sell those units a second time. A
-- store that takes no writes answers nothing: if nothing else is written, a write that changes nothing comes first, and
-- a replica replies READONLY.
local ALIVE_MS = 5000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local what, who = ARGV[4], ARGV[5]

local function say(...)
  redis.call('HDEL', KEYS[1], '')
  return {ARGV[2], ...}
end

local heard = redis.call('HGET', KEYS[1], 'i:' .. who)
if heard and now - tonumber(heard) <= ALIVE_MS then return say('ALIVE') end

if what == 'list' then
  local page = redis.call('SCAN', ARGV[6], 'MATCH', ARGV[7], 'COUNT', 200)
  local names = {}
  for i = 1, #page[2] do names[i] = #page[2][i] .. ':' .. page[2][i] end
  return say('OK', page[1], table.concat(names))
end

local freed = 0
for i = 2, #KEYS do
  local mine = redis.pcall('HGET', KEYS[i], who)
  local conn, granted, returned, spent, risk =
    string.match(type(mine) == 'string' and mine or '', '^(%d+) (%d+) (%d+) (-?%d+) (%d+)$')
  local units = conn and tonumber(granted) - tonumber(returned) - tonumber(spent) or 0
  if units > 0 then
    local total = tonumber(redis.call('HGET', KEYS[i], 't') or '0')
    returned = string.format('%.0f', tonumber(returned) + units)
    redis.call('HSET', KEYS[i], who, table.concat({conn, granted, returned, spent, risk}, ' '), 't',
      string.format('%.0f', total - units))
    freed = freed + units
  end
end
return say('OK', string.format('%.0f', freed))
