-- lease.lua -- one engine's lease of one hard limit: what the engine reports about it, and what it is granted.
-- leases.lua keeps the epoch.
--
-- All numbers that an engine sends are cumulative and absolute ("granted so much in all, returned so much in all"). So
-- repeating a message is harmless: after a lost reply it is sent again (trap L1).
--
-- KEYS[1]  the epoch (leases.lua)
-- KEYS[2]  the requested leases (leases.lua)
-- KEYS[3]  the lease (a hash next to the counter). t: the units out (granted and not returned) of all instances; s:
--          those of them that are known to be spent; l: the last limit; e: the epoch in which it was made; f: what was
--          certainly spent before Redis forgot all; for each instance "connection granted returned spent risk"; d: what
--          the folded engines have spent; k "time cursor sum stranded": the progress of a look at all engines, if they
--          are many; p: the units by which the total has passed the limit and that are not in anybody's risk yet
-- ARGV     1 version, 2 the epoch, 3 instance, 4 the serial number of its connection, 5 the window's expiry (absolute,
--          ms; 0: none), 6 limit, 7 granted as last replied, 8 the value that granted should get, 9 how many more units
--          are of use at least (0: it only draws ahead), 10 returned, 11 spent, 12 the sum spent as last replied (0: it
--          does not restate), 13 "1": look how much is stranded, 14 its life (leases.lua), 15 the largest returned that
--          an earlier life sent, of a lease that was sent in this epoch ("": there is none), 16 risk as last replied
-- Replies  {status, ms of TIME, granted, t, s, stranded (-1: not looked), risk, open, in how many ms this engine is no
--          longer new (0: it is not new)}
--          OK; EPOCH: another epoch has begun, or another life: request it first; STALE: a later connection of this
--          instance has sent a message already, so this process lives twice; TWIN: what was spent under this name is
--          more than this engine was ever granted: the same; LATE: the window is over by Redis's clock; CLASH: another version. Only
--          OK changes anything. A replica replies the error READONLY
--
-- An engine is FOLDED when its life is over (it left, or was not heard of for a day) and it has no unit out: its field
-- is removed, and what it has spent is added to d. A late copy of its messages belongs to a life that is over, and is
-- ignored. If the engine returns, in another life and the same epoch, it has no unit out: what it has spent is
-- subtracted from d again.
-- Always true: a grant never raises t above the limit. Units that an engine was granted and that Redis forgot may do
-- so. What has passed the limit is counted once the epoch is open, and becomes the risk of the first engine that sends
-- a message. Before that, messages come in any order: one engine may restate its grant before another one restates what
-- it returned in exchange. If an engine reports a smaller grant than Redis has, it never got the reply with the rest,
-- and does not get it now: another store may have granted those units to another engine since. An engine has one
-- message of a lease in flight, so what it sends is what it knows. Of two lives of one process, the one that connected
-- later keeps the name, unless it is seen to know less than was spent under it; the other one takes another name.
-- A store whose history is not the epoch's grants nothing. The script looks at the history itself, because a connection
-- may outlive a change. Every OK and every LATE comes after a write. The first write uses redis.call, so Redis refuses
-- all or nothing. Numbers are exact up to 2^53. t is d plus what all engines have out; s is d plus what all have spent.
-- an engine that was silent for this long counts as gone; live ones come once in EVERY_MS
local STRANDED_MS = 5000
local REQUESTED_MS = 5000                   -- as long as leases.lua looks at an entry
local NEW_MS = 1200                      -- by then the others know of this engine
local FEW_NEW, SOON_MS = 16, 50          -- or sooner, if there are few engines and all have come since it did
local EVERY_MS, EVERY_MORE_MS = 150, 1   -- as in leases.lua
local FEW, PAGE, LOOK_MS = 128, 64, 100  -- more fields than FEW are looked at by pages: how many at once, and how often
local function number(text)              -- of what somebody else wrote, only what is exact
  local value = tonumber(text or '0') or 0
  return value >= -9007199254740992 and value <= 9007199254740992 and value or 0
end
local function text(value) return string.format('%.0f', value) end

if ARGV[1] ~= '2' then return {'CLASH', 0} end
local me, serial, limit = ARGV[3], number(ARGV[4]), number(ARGV[6])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('HMGET', KEYS[1], 'id', 'run', 'open', 'b:' .. me, 'n')
local info = redis.pcall('INFO', 'replication')
if type(info) == 'string' then           -- else INFO is not permitted: a change is noticed only by what is missing
  if string.find(info, 'role:slave', 1, true) then return {err = 'READONLY this store is a replica'} end
  if epoch[2] ~= string.match(info, 'master_replid:(%x+)') then return {'EPOCH', now} end
end
if epoch[1] ~= ARGV[2] or epoch[4] ~= ARGV[14] then return {'EPOCH', now} end
local expiry = number(ARGV[5])
if expiry ~= 0 and now >= expiry then
  local probe = redis.pcall('PEXPIRE', KEYS[2], REQUESTED_MS) -- a harmless write, which only a master accepts
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
if string.find(had[9] or '', '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') then -- 17 digits: somebody else wrote that field
  had[9], conn, granted, returned, spent, risk = false, 0, 0, 0, 0, 0
end
if serial < conn then return {'STALE', now} end
if serial > conn and spent > number(ARGV[7]) then return {'TWIN', now} end
local limits = math.max(limit, number(had[4]))
local function beyond()
  local used = math.max(total, floor)
  return used > limits and used - limits or 0
end
local before = beyond()
if not had[9] and ARGV[15] ~= '' then    -- this engine was folded
  granted, returned, risk = number(ARGV[7]), number(ARGV[15]), number(ARGV[16])
  spent = granted - returned
  collapsed = collapsed - spent
end

if number(ARGV[10]) > returned then      -- returned units come first
  total = total - (number(ARGV[10]) - returned)
  returned = number(ARGV[10])
end
spent_all = spent_all + number(ARGV[11]) - spent
spent = number(ARGV[11])

local is_open = epoch[3] == '1'
if number(ARGV[7]) > granted then        -- Redis forgot a grant
  total = total + number(ARGV[7]) - granted
  granted = number(ARGV[7])
  if is_open then                        -- and nobody has noticed: all engines must restate
    is_open = false
    local was = redis.call('HGET', KEYS[1], 'was') or ''
    redis.call('HSET', KEYS[1], 'id', '', 'open', '0', 'was', ARGV[2] .. ',' .. was)
  end
-- it never got the reply. Units that reclaim.lua has freed of these are not freed twice
else
  local unreported = math.max(0, math.min(granted - number(ARGV[7]), granted - returned - spent))
  total = total - unreported
  granted = granted - unreported
end
-- An engine that left cannot restate what it sold. Only if all is lost: refunds since would make the sum too high.
if number(ARGV[12]) > floor and (had[5] or ARGV[2]) == ARGV[2] then floor = number(ARGV[12]) end
passed = passed + beyond() - before
if number(ARGV[16]) > risk then          -- Redis had replied this much before it forgot
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
  -- Grants a share of what is left, so that grants shrink towards 1 at the end. holders: live engines that have
  -- units here.
  local left = limit - math.max(total, floor)
  local holders = math.max(1, math.min(parts, engines))
  local give = math.min(want, math.max(need, math.floor(left / (2 * holders))), left)
  if give < need or give < 0 then give = 0 end
  granted = granted + give
  total = total + give
  failed = give < need
end

-- The other engines with a field here, all of them or the next page: what is stranded, and which engines are folded.
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
      -- More than twice as many fields as live engines: most belong to engines that are gone.
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
if #gone ~= 0 and redis.pcall('HDEL', KEYS[3], unpack(gone)) == #gone then -- if HDEL is forbidden, no engine is folded
  redis.call('HSET', KEYS[3], 'd', text(collapsed + gone_spent))
end
if expiry ~= 0 and redis.pcall('PTTL', KEYS[3]) == -1 then redis.pcall('PEXPIREAT', KEYS[3], ARGV[5]) end
if failed then
  redis.pcall('ZADD', KEYS[2], now, me .. KEYS[3])
  redis.pcall('PEXPIRE', KEYS[2], math.max(REQUESTED_MS, 3 * every))
end
return {'OK', now, text(granted), text(total), text(math.max(spent_all, floor)), text(stranded), text(risk), open and 1 or 0,
  is_new_for}
