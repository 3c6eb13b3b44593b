-- reclaim.lua -- frees what a dead engine was granted and is not known to have spent, for tw_lease_reclaim(): first the
-- names of all leases page by page, then each lease. lease.lua describes what they hold.
--
-- KEYS[1]  the epoch (leases.lua): when the engine was last heard of
-- KEYS[2].. of look, free: leases; where ARGV[6] is empty, one lease and its counter; of who: leases
-- ARGV     1..3 of the connection (sync/ask/call_text.h), not used: repeating the call frees nothing twice; 4 what: list,
--          look, free, who; 5 instance; of look and free: 6 how many bytes of a name are the prefix: the counter of
--          a lease is its name without the "tw:lease:" behind the prefix;
--          of list: 6 SCAN's cursor, 7 SCAN's pattern
-- Replies  {number, status, ...}: OK; ALIVE: it was heard of within 5 s, nothing was done. After OK
--          list      cursor, names, each as "size:name"
--          look      units that could be freed, in sum; in how many of the leases the engine has a field
--          free      units freed, in sum; the same
--          who       instances that have fields, each of 32 digits, some of them
--
-- Always true: what the engine reported as spent stays spent, and so does what the counter has beyond the reports of all
-- engines: the dead one may have sold that in its last second. What it sold and never sent is freed, for nobody knows
-- of it: the limit may then be passed by as much. If the engine returns, it may sell those units a second time. A
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

if what == 'who' then
  local seen, out = {}, {}
  for i = 2, #KEYS do
    local page = redis.pcall('HSCAN', KEYS[i], '0', 'COUNT', '100')
    for j = 1, page.err and 0 or #page[2], 2 do
      local field = page[2][j]
      if #field == 32 and not string.find(field, '%X') and not seen[field] then
        seen[field] = true
        out[#out + 1] = field
      end
    end
  end
  return say('OK', table.concat(out, ', ', 1, math.min(#out, 5)))
end

-- What Redis knows to be sold and no engine has reported as spent.
local function unreported(lease, counter)
  local known = redis.pcall('HMGET', lease, 's', 'f')
  local value = redis.pcall('GET', counter)
  local sold = type(value) == 'string' and tonumber(value) or 0
  if known.err then return 0 end
  return math.max(0, math.max(sold, tonumber(known[2] or '') or 0) - (tonumber(known[1] or '') or 0))
end

local freed, fields = 0, 0
for i = 2, ARGV[6] == '' and 2 or #KEYS do
  local lease, prefix = KEYS[i], tonumber(ARGV[6])
  local counter = prefix and string.sub(lease, 1, prefix) .. string.sub(lease, prefix + 10) or KEYS[3]
  local mine = redis.pcall('HGET', lease, who)
  local conn, granted, returned, spent, risk =
    string.match(type(mine) == 'string' and mine or '', '^(%d+) (%d+) (%d+) (-?%d+) (%d+)$')
  local units = conn and tonumber(granted) - tonumber(returned) - tonumber(spent) or 0
  if conn then fields = fields + 1 end
  if units > 0 then units = math.max(0, units - unreported(lease, counter)) end
  if units > 0 and what == 'free' then
    local total = tonumber(redis.call('HGET', lease, 't') or '0')
    returned = string.format('%.0f', tonumber(returned) + units)
    redis.call('HSET', lease, who, table.concat({conn, granted, returned, spent, risk}, ' '), 't',
      string.format('%.0f', total - units))
  end
  freed = freed + math.max(0, units)
end
return say('OK', string.format('%.0f', freed), string.format('%.0f', fields))
