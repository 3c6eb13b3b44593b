-- leases.lua -- who takes part in hard limits, and the epoch in which grants are valid.   Beside lease.lua.
--
-- An EPOCH begins when Redis may have forgotten, or another store may have granted: the data have another history than those
-- that the epoch was begun in (master_replid: a restart, a promotion, also of the same server again), or there is none (first
-- use, FLUSHALL), or an engine comes from an epoch that this store has never met (another store was seen for a while), or
-- lease.lua found a grant missing. In an epoch nothing is granted until every engine that took part has said again what it was
-- granted. Who took part is known from here, and, should Redis have forgotten the newest of them, from the others: each has
-- been told of all others, and a new one is granted nothing before they have been.
--
-- KEYS[1]  the epoch (a hash without expiry): id; run, the master_replid it was begun in; was, the epochs before it, the last
--          sixteen; from, until then nothing is granted; to, who has not come by then is not waited for; open, 1 while grants
--          may be given; i:INSTANCE, when (ms) that engine was last heard of; b:INSTANCE, when it first was; w:INSTANCE, it has
--          not said everything again
-- KEYS[2]  what is wanted (a sorted set): instance and name of a lease, by when (ms) it last got too little
-- ARGV     1 version, 2 instance, 3 the epoch it knows ("": none, it was never granted anything), 4 the run of that epoch,
--          5 the epoch in which it has said everything again, 6 an id for a new epoch, 7 since when (ms) it wants to know what
--          is wanted, 8 "1": it holds nothing any more, and goes; 9.. others that it was told of, where it may know more than
--          Redis does
-- Answers  {status, ms of TIME, id, open, run, how many others take part, their instances ..., names that are wanted ...}
--          OK; CLASH another version, nothing was done; the error READONLY from a replica, also from one that takes writes
--
-- Always true: there is no answer without a write before it, so a copy of the store that is only read tells nothing; the first
-- write goes by redis.call, so that Redis refuses all or nothing; every further call with the same arguments changes nothing
-- but times. Which server this is the script looks up itself: a connection may outlive a change of it.
local FRESH_MS = 1200                    -- first use: engines that live have come (they do once a second)
local WIPED_MS = 2500                    -- the same server, and empty: they are connected, and come once a second
local RESTARTED_MS = 11000               -- another server, and empty: they are back after 10 s at most (sync/breaker.h)
local SETTLE_MS = 1000                   -- another server that knows them: for those it has lost with its last second
local LATE_MS = 2000                     -- for one that comes when the others have begun again
local FORGET_MS = 60000                  -- an engine that was not heard of for so long is not waited for in a later epoch
local WANTED_MS = 5000

local WAS_MAX = 16

if ARGV[1] ~= '2' then return {'CLASH', 0} end
local me = ARGV[2]
local info = redis.pcall('INFO', 'replication')
if type(info) ~= 'string' then info = '' end -- not permitted: a change is noticed only by what is missing
if string.find(info, 'role:slave', 1, true) then return {err = 'READONLY this store is a replica'} end
local run = string.match(info, 'master_replid:(%x+)') or ''
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all, had = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do had[all[i]] = all[i + 1] end

if ARGV[8] == '1' then
  redis.call('HDEL', KEYS[1], 'i:' .. me, 'b:' .. me, 'w:' .. me)
  return {'OK', now, had['id'] or '', 0, run, 0}
end

local set, gone = {}, {}                 -- what becomes of the hash: in one write
local function put(field, value)
  set[#set + 1] = field
  set[#set + 1] = value
  had[field] = value
end

local function has_met(id) return string.find(had['was'] or '', id, 1, true) ~= nil end

local function begin()
  local wait = SETTLE_MS
  if had['id'] == nil then
    wait = FRESH_MS
    if ARGV[3] ~= '' then wait = ARGV[4] == run and WIPED_MS or RESTARTED_MS end
  elseif had['id'] == '' then
    wait = 0
  end
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'i:' then put('w:' .. string.sub(all[i], 3), '1') end
  end
  local was = {}
  for _, id in ipairs({had['id'] or '', ARGV[3]}) do
    if id ~= '' and not has_met(id) and id ~= was[1] then was[#was + 1] = id end
  end
  for id in string.gmatch(had['was'] or '', '[^,]+') do
    if #was < WAS_MAX then was[#was + 1] = id end
  end
  put('was', table.concat(was, ','))
  put('id', ARGV[6])
  put('run', run)
  put('from', tostring(now + wait))
  put('to', tostring(now + RESTARTED_MS))
  put('open', '0')
end

local is_strange = ARGV[3] ~= '' and ARGV[3] ~= had['id'] and not has_met(ARGV[3])
if (had['id'] or '') == '' or (run ~= '' and had['run'] ~= run) or is_strange then begin() end
put('i:' .. me, tostring(now))
if not had['b:' .. me] then put('b:' .. me, tostring(now)) end
for i = 9, #ARGV do
  if had['open'] ~= '1' and not had['i:' .. ARGV[i]] and not had['w:' .. ARGV[i]] then put('w:' .. ARGV[i], '1') end
end
if ARGV[3] ~= '' and ARGV[5] ~= had['id'] then
  if not had['w:' .. me] then
    put('w:' .. me, '1')
    if tonumber(had['to']) < now + LATE_MS then put('to', tostring(now + LATE_MS)) end
  end
elseif had['w:' .. me] then
  gone[#gone + 1] = 'w:' .. me
  had['w:' .. me] = nil
end

local late, others = {}, {}
for field, value in pairs(had) do
  local kind, who = string.sub(field, 1, 2), string.sub(field, 3)
  if kind == 'w:' then late[#late + 1] = field end
  if kind == 'i:' and now - tonumber(value) > FORGET_MS and not had['w:' .. who] then
    gone[#gone + 1] = field
    gone[#gone + 1] = 'b:' .. who
  elseif kind == 'i:' and who ~= me then
    others[#others + 1] = who
  end
end
local open = '0'
if now >= tonumber(had['from']) and (#late == 0 or now >= tonumber(had['to'])) then open = '1' end
if open ~= had['open'] then put('open', open) end
if open == '1' then                      -- who comes after this makes the others wait anew
  for i = 1, #late do gone[#gone + 1] = late[i] end
end

redis.call('HSET', KEYS[1], unpack(set))
if #gone ~= 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end

local out = {'OK', now, had['id'], tonumber(open), had['run'], math.min(#others, 100)}
for i = 1, out[6] do out[6 + i] = others[i] end
redis.pcall('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - WANTED_MS)
local names = redis.pcall('ZRANGEBYSCORE', KEYS[2], ARGV[7], '+inf', 'LIMIT', 0, 128)
for i = 1, #names do
  if string.sub(names[i], 1, 32) ~= me then out[#out + 1] = string.sub(names[i], 33) end
end
return out
