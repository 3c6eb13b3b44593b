-- lease.lua -- one engine's lease of one hard limit: what it says of it, and what it may have.   Beside leases.lua.
--
-- Everything an engine says is cumulative and absolute, "so much was I ever granted, so much have I ever given back", so
-- that saying it again is harmless: a lost answer is asked for again (trap L1).
--
-- KEYS[1]  the epoch (leases.lua)
-- KEYS[2]  what is wanted (leases.lua)
-- KEYS[3]  the lease (a hash beside the counter): t the units out, granted and not given back, of all instances; s those of
--          them that are known to be spent; l the limit that was named last; e the epoch in which it was made; f what was
--          surely spent before Redis forgot all; and for each instance "connection granted returned spent risk"
-- ARGV     1 version, 2 the epoch, 3 instance, 4 the serial number of its connection, 5 the window's expiry (absolute, ms;
--          0: none), 6 limit, 7 granted as it was told, 8 what granted should become, 9 how many more units are of use at
--          least (0: it only draws ahead), 10 returned, 11 spent, 12 the sum spent as it was told (0: it is not saying
--          everything again), 13 "1": look how much is stranded
-- Answers  {status, ms of TIME, granted, t, s, stranded (-1: not looked), risk, open}
--          OK; EPOCH another epoch has begun, first everything is to be said again; STALE a later connection of this
--          instance has spoken already; LATE the window is dead by Redis's clock; CLASH another version. But for OK nothing
--          was done. The error READONLY from a replica
--
-- Always true: t never rises above the limit by a grant; it does by what an engine was granted and Redis forgot, and that is
-- added to its risk. Nothing is granted by a store whose history is not the epoch's: the script looks that up itself, for a
-- connection may outlive a change. There is no OK and no LATE without a write before it; the first one goes by redis.call, so
-- Redis refuses all or nothing. Numbers are exact up to 2^53.
local STRANDED_MS = 5000                 -- engines are heard of once a second
local WANTED_MS = 5000                   -- as long as any of it is looked at (leases.lua)
local NEW_MS = 1200                      -- by then all others have been told of this engine: they ask once a second
local function number(text) return tonumber(text or '0') or 0 end
local function text(value) return string.format('%.0f', value) end

if ARGV[1] ~= '2' then return {'CLASH', 0} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('HMGET', KEYS[1], 'id', 'run', 'open', 'b:' .. ARGV[3])
local info = redis.pcall('INFO', 'replication')
if type(info) == 'string' then           -- else it is not permitted: a change is noticed only by what is missing
  if string.find(info, 'role:slave', 1, true) then return {err = 'READONLY this store is a replica'} end
  if epoch[2] ~= string.match(info, 'master_replid:(%x+)') then return {'EPOCH', now} end
end
if epoch[1] ~= ARGV[2] then return {'EPOCH', now} end
local expiry = number(ARGV[5])
if expiry ~= 0 and now >= expiry then
  local said = redis.pcall('PEXPIRE', KEYS[2], WANTED_MS) -- it changes nothing of note, and only a master does it
  if type(said) == 'table' and string.find(said.err, 'READONLY', 1, true) then return said end
  return {'LATE', now}
end

local me, serial, limit = ARGV[3], number(ARGV[4]), number(ARGV[6])
local had = redis.call('HMGET', KEYS[3], 't', 's', 'f', 'l', 'e', me)
local total, spent_all, floor = number(had[1]), number(had[2]), number(had[3])
local conn, granted, returned, spent, risk = string.match(had[6] or '', '^(%d+) (%d+) (%d+) (-?%d+) (%d+)$')
conn, granted, returned, spent, risk = number(conn), number(granted), number(returned), number(spent), number(risk)
if serial < conn then return {'STALE', now} end

if number(ARGV[10]) > returned then      -- first what comes back
  total = total - (number(ARGV[10]) - returned)
  returned = number(ARGV[10])
end
spent_all = spent_all + number(ARGV[11]) - spent
spent = number(ARGV[11])

local function beyond(limits)
  local used = math.max(total, floor)
  return used > limits and used - limits or 0
end
local open = epoch[3] == '1' and epoch[4] and now - epoch[4] >= NEW_MS
if number(ARGV[7]) > granted then        -- forgotten
  local limits = math.max(limit, number(had[4]))
  local before = beyond(limits)
  total = total + number(ARGV[7]) - granted
  granted = number(ARGV[7])
  risk = risk + beyond(limits) - before
  if epoch[3] == '1' then                -- and nobody has noticed: all must say everything again
    open = false
    local was = redis.call('HGET', KEYS[1], 'was') or ''
    redis.call('HSET', KEYS[1], 'id', '', 'open', '0', 'was', ARGV[2] .. ',' .. was)
  end
end
-- Who departed cannot say again what it sold. Only where all is gone: refunds since would make the sum too high.
if number(ARGV[12]) > floor and (had[5] or ARGV[2]) == ARGV[2] then floor = number(ARGV[12]) end

local want, need, failed = number(ARGV[8]) - granted, number(ARGV[9]), false
if want > 0 and open then
  -- A share of what is left, so that lots shrink towards 1 at the end; holders: all who ever drew here.
  local left = limit - math.max(total, floor)
  local holders = math.max(1, redis.call('HLEN', KEYS[3]) - (had[1] and (had[3] and 5 or 4) or 0) + (had[6] and 0 or 1))
  local give = math.min(want, math.max(need, math.floor(left / (2 * holders))), left)
  if give < need or give < 0 then give = 0 end
  granted = granted + give
  total = total + give
  failed = give < need
end

local mine = table.concat({text(serial), text(granted), text(returned), text(spent), text(risk)}, ' ')
local set = {'t', text(total), 's', text(spent_all), 'l', text(limit), 'e', had[5] or ARGV[2], me, mine}
if floor > 0 then
  set[11] = 'f'
  set[12] = text(floor)
end
redis.call('HSET', KEYS[3], unpack(set))
if expiry ~= 0 and redis.pcall('PTTL', KEYS[3]) == -1 then redis.pcall('PEXPIREAT', KEYS[3], ARGV[5]) end

local stranded = -1
if failed or ARGV[13] == '1' then
  stranded = 0
  local all = redis.pcall('HGETALL', KEYS[3])
  for i = 1, #all, 2 do
    if #all[i] == 32 and all[i] ~= me then
      local _, g, r, s = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (-?%d+) ')
      local heard = redis.pcall('HGET', KEYS[1], 'i:' .. all[i])
      if type(heard) ~= 'string' or now - number(heard) > STRANDED_MS then
        stranded = stranded + math.max(0, number(g) - number(r) - number(s))
      end
    end
  end
end
if failed then
  redis.pcall('ZADD', KEYS[2], now, me .. KEYS[3])
  redis.pcall('PEXPIRE', KEYS[2], WANTED_MS)
end
return {'OK', now, text(granted), text(total), text(math.max(spent_all, floor)), text(stranded), text(risk), open and 1 or 0}
