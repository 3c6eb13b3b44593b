-- lease.lua -- one engine's lease of one hard limit: what it says of it, and what it may have.   Beside leases.lua.
--
-- Everything an engine says is cumulative and absolute, "so much was I ever granted, so much have I ever given back", so
-- that saying it again is harmless: a lost answer is asked for again (trap L1).
--
-- KEYS[1]  the epoch (leases.lua)
-- KEYS[2]  what is wanted (leases.lua)
-- KEYS[3]  the lease (a hash beside the counter): t the units out, granted and not given back, of all instances; s those of
--          them that are known to be spent; l the limit that was named last; e the epoch in which it was made; f what was
--          surely spent before Redis forgot all; for each instance "connection granted returned spent risk"; d what those
--          have spent who are folded; k "time cursor sum stranded" of a look at all who are many; p by how much what is out
--          has come to pass the limit, and has been added to nobody's risk yet
-- ARGV     1 version, 2 the epoch, 3 instance, 4 the serial number of its connection, 5 the window's expiry (absolute, ms;
--          0: none), 6 limit, 7 granted as it was told, 8 what granted should become, 9 how many more units are of use at
--          least (0: it only draws ahead), 10 returned, 11 spent, 12 the sum spent as it was told (0: it is not saying
--          everything again), 13 "1": look how much is stranded, 14 its life (leases.lua), 15 returned as it was said at most
--          in a life before, of a lease that was said in this epoch ("": there is none), 16 risk as it was told
-- Answers  {status, ms of TIME, granted, t, s, stranded (-1: not looked), risk, open, in how many ms this engine is no longer
--          new (0: it is not)}
--          OK; EPOCH another epoch has begun, or another life: that is to be asked for first; STALE a later connection of this
--          instance has spoken already; LATE the window is dead by Redis's clock; CLASH another version. But for OK nothing
--          was done. The error READONLY from a replica
--
-- FOLDED is an engine whose life is over (it left, or was not heard of for a day) and that has no unit out: its field goes, and
-- what it has spent is in d. A late copy of its words is of a life that is over, and counts for nothing. Should it come
-- again, in another life and the same epoch, it had no unit out: what it has spent is taken from d again.
-- Always true: t never rises above the limit by a grant; it does by what an engine was granted and Redis forgot. What has passed
-- the limit is counted once the epoch is open, to the risk of whoever speaks first: until then words come in any order, so one
-- that says again what it was granted may come before another that says what it gave back for that. Who says that it was
-- granted less than stands here was never told of the rest, and is not told now: another store may have granted it to
-- another one since. An engine has one word of a lease under way, so what it says is what it knows.
-- Nothing is granted by a store whose history is not the epoch's: the script looks that up itself, for a
-- connection may outlive a change. There is no OK and no LATE without a write before it; the first one goes by redis.call, so
-- Redis refuses all or nothing. Numbers are exact up to 2^53. t is d and what all have out, s is d and what all have spent.
local STRANDED_MS = 5000                 -- who was not heard of for so long is gone; engines come once in EVERY_MS
local REQUESTED_MS = 5000                   -- as long as any of it is looked at (leases.lua)
local NEW_MS = 1200                      -- by then others have been told of this engine
local FEW_NEW, SOON_MS = 16, 50          -- or sooner, where all of so few have come since it did
local EVERY_MS, EVERY_MORE_MS = 150, 1   -- as in leases.lua
local FEW, PAGE, LOOK_MS = 128, 64, 100  -- more parts than that are looked at by pages, so many at once, not more often
local function number(text) return tonumber(text or '0') or 0 end
local function text(value) return string.format('%.0f', value) end

if ARGV[1] ~= '2' then return {'CLASH', 0} end
local me, serial, limit = ARGV[3], number(ARGV[4]), number(ARGV[6])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('HMGET', KEYS[1], 'id', 'run', 'open', 'b:' .. me, 'n')
local info = redis.pcall('INFO', 'replication')
if type(info) == 'string' then           -- else it is not permitted: a change is noticed only by what is missing
  if string.find(info, 'role:slave', 1, true) then return {err = 'READONLY this store is a replica'} end
  if epoch[2] ~= string.match(info, 'master_replid:(%x+)') then return {'EPOCH', now} end
end
if epoch[1] ~= ARGV[2] or epoch[4] ~= ARGV[14] then return {'EPOCH', now} end
local expiry = number(ARGV[5])
if expiry ~= 0 and now >= expiry then
  local probe = redis.pcall('PEXPIRE', KEYS[2], REQUESTED_MS) -- it changes nothing of note, and only a master does it
  if type(probe) == 'table' and string.find(probe.err, 'READONLY', 1, true) then return probe end
  return {'LATE', now}
end
local engines = math.max(1, number(epoch[5]))
local every = math.max(EVERY_MS, math.floor(EVERY_MORE_MS * engines))
local born = number(epoch[4])
local is_new_for, soon = math.max(0, born + NEW_MS - now), math.max(SOON_MS, born + every + SOON_MS - now)
if is_new_for > 0 and engines <= FEW_NEW then
  local all, unreported = redis.call('HGETALL', KEYS[1]), false
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'i:' and all[i] ~= 'i:' .. me and number(all[i + 1]) <= born then unreported = true end
  end
  is_new_for = unreported and math.min(is_new_for, soon) or 0
end

local had = redis.call('HMGET', KEYS[3], 't', 's', 'f', 'l', 'e', 'd', 'k', 'p', me)
local total, spent_all, floor, collapsed = number(had[1]), number(had[2]), number(had[3]), number(had[6])
local passed = number(had[8])
local conn, granted, returned, spent, risk = string.match(had[9] or '', '^(%d+) (%d+) (%d+) (-?%d+) (%d+)$')
conn, granted, returned, spent, risk = number(conn), number(granted), number(returned), number(spent), number(risk)
if serial < conn then return {'STALE', now} end
local limits = math.max(limit, number(had[4]))
local function beyond()
  local used = math.max(total, floor)
  return used > limits and used - limits or 0
end
local before = beyond()
if not had[9] and ARGV[15] ~= '' then    -- it was folded
  granted, returned, risk = number(ARGV[7]), number(ARGV[15]), number(ARGV[16])
  spent = granted - returned
  collapsed = collapsed - spent
end

if number(ARGV[10]) > returned then      -- first what comes back
  total = total - (number(ARGV[10]) - returned)
  returned = number(ARGV[10])
end
spent_all = spent_all + number(ARGV[11]) - spent
spent = number(ARGV[11])

local is_open = epoch[3] == '1'
if number(ARGV[7]) > granted then        -- forgotten
  total = total + number(ARGV[7]) - granted
  granted = number(ARGV[7])
  if is_open then                        -- and nobody has noticed: all must say everything again
    is_open = false
    local was = redis.call('HGET', KEYS[1], 'was') or ''
    redis.call('HSET', KEYS[1], 'id', '', 'open', '0', 'was', ARGV[2] .. ',' .. was)
  end
else                                     -- never told: but what was freed of it already (reclaim.lua) is not freed twice
  local unreported = math.max(0, math.min(granted - number(ARGV[7]), granted - returned - spent))
  total = total - unreported
  granted = granted - unreported
end
-- Who departed cannot say again what it sold. Only where all is gone: refunds since would make the sum too high.
if number(ARGV[12]) > floor and (had[5] or ARGV[2]) == ARGV[2] then floor = number(ARGV[12]) end
passed = passed + beyond() - before
if number(ARGV[16]) > risk then          -- so much of it was told before Redis forgot that
  passed = passed - (number(ARGV[16]) - risk)
  risk = number(ARGV[16])
end
if is_open then
  risk = risk + math.max(0, passed)
  passed = 0
end
local open = is_open and is_new_for == 0

local want, need, failed = number(ARGV[8]) - granted, number(ARGV[9]), false
local parts = 0                          -- how many engines have a field here
if (want > 0 and open) or ARGV[13] == '1' then
  local fixed = 0
  for i = 1, 8 do fixed = fixed + (had[i] and 1 or 0) end
  parts = redis.call('HLEN', KEYS[3]) - fixed + (had[9] and 0 or 1)
end
if want > 0 and open then
  -- A share of what is left, so that lots shrink towards 1 at the end; holders: those who have drawn here, and live.
  local left = limit - math.max(total, floor)
  local holders = math.max(1, math.min(parts, engines))
  local give = math.min(want, math.max(need, math.floor(left / (2 * holders))), left)
  if give < need or give < 0 then give = 0 end
  granted = granted + give
  total = total + give
  failed = give < need
end

-- Who else has a field here, all of them or the next page: what is stranded, and who is folded.
local gone, gone_spent, stranded = {}, 0, -1
local function look_at(fields)
  local who, of, queries, sum = {}, {}, {}, 0
  for i = 1, #fields, 2 do
    if #fields[i] == 32 and fields[i] ~= me then
      local _, g, r, s = string.match(fields[i + 1], '^(%d+) (%d+) (%d+) (-?%d+) ')
      who[#who + 1] = fields[i]
      of[#of + 1] = {number(g) - number(r) - number(s), number(s)}
      queries[#queries + 1] = 'b:' .. fields[i]
      queries[#queries + 1] = 'i:' .. fields[i]
    end
  end
  local states = #queries == 0 and {} or redis.pcall('HMGET', KEYS[1], unpack(queries))
  if states.err then return 0 end
  for i = 1, #who do
    local last_heartbeat = states[2 * i]
    if of[i][1] == 0 and not states[2 * i - 1] then
      gone[#gone + 1] = who[i]
      gone_spent = gone_spent + of[i][2]
    elseif not last_heartbeat or now - number(last_heartbeat) > math.max(STRANDED_MS, 5 * every) then
      sum = sum + math.max(0, of[i][1])
    end
  end
  return sum
end
local state = had[7]
if failed or ARGV[13] == '1' then
  if parts <= FEW then
    local all = redis.pcall('HGETALL', KEYS[3])
    stranded = look_at(all.err and {} or all)
  else
    local at, cursor, sum, last = string.match(state or '', '^(%d+) (%d+) (%d+) (-?%d+)$')
    if now - number(at) >= LOOK_MS then
      -- More fields than twice those who live: the fields of many who are gone.
      local count = parts > 2 * engines + FEW and 8 * PAGE or PAGE
      local page = redis.pcall('HSCAN', KEYS[3], cursor or '0', 'COUNT', count)
      if not page.err then
        sum = number(sum) + look_at(page[2])
        if page[1] == '0' then
          last = sum
          sum = 0
        end
        state = table.concat({now, page[1], text(sum), text(number(last or '-1'))}, ' ')
      end
    end
    stranded = number(last or '-1')
  end
end

local mine = table.concat({text(serial), text(granted), text(returned), text(spent), text(risk)}, ' ')
local set = {'t', text(total), 's', text(spent_all), 'l', text(limit), 'e', had[5] or ARGV[2], me, mine}
local function put(field, value)
  set[#set + 1] = field
  set[#set + 1] = value
end
if floor > 0 then put('f', text(floor)) end
if had[6] or collapsed ~= 0 then put('d', text(collapsed)) end
if state then put('k', state) end
if had[8] or passed ~= 0 then put('p', text(passed)) end
redis.call('HSET', KEYS[3], unpack(set))
if #gone ~= 0 and redis.pcall('HDEL', KEYS[3], unpack(gone)) == #gone then -- where that is forbidden, nobody is folded
  redis.call('HSET', KEYS[3], 'd', text(collapsed + gone_spent))
end
if expiry ~= 0 and redis.pcall('PTTL', KEYS[3]) == -1 then redis.pcall('PEXPIREAT', KEYS[3], ARGV[5]) end
if failed then
  redis.pcall('ZADD', KEYS[2], now, me .. KEYS[3])
  redis.pcall('PEXPIRE', KEYS[2], math.max(REQUESTED_MS, 3 * every))
end
return {'OK', now, text(granted), text(total), text(math.max(spent_all, floor)), text(stranded), text(risk), open and 1 or 0,
  is_new_for}
