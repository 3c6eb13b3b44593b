-- leases.lua -- who takes part in hard limits, and the epoch in which grants are valid.   Beside lease.lua.
--
-- An EPOCH begins when Redis may have forgotten: the server is another run than the one that the epoch was begun in (a
-- restart, a failover), or there is none (first use, FLUSHALL), or lease.lua found a grant missing. In an epoch nothing
-- is granted until every engine that took part has said again what it was granted. Who took part is known from here, and,
-- should Redis have forgotten the newest of them, from the others: each has been told of all others, and a new one is granted
-- nothing before they have been.
--
-- KEYS[1]  the epoch (a hash without expiry): id; run, the server's run_id; from, until then nothing is granted; to, who has
--          not come by then is not waited for; open, 1 while grants may be given; i:INSTANCE, when (ms) that engine was
--          last heard of; b:INSTANCE, when it first was; w:INSTANCE, it has not said everything again
-- KEYS[2]  what is wanted (a sorted set): instance and name of a lease, by when (ms) it last got too little
-- ARGV     1 version, 2 run_id ("": not known), 3 instance, 4 the epoch it knows ("": none, it was never granted anything),
--          5 the run_id of that epoch, 6 the epoch in which it has said everything again, 7 an id for a new epoch,
--          8 since when (ms) it wants to know what is wanted, 9 "1": it holds nothing any more, and goes; 10.. others that it
--          was told of, where it may know more than Redis does
-- Answers  {status, ms of TIME, id, open, how many others take part, their instances ..., names that are wanted ...}
--          OK; CLASH another version, nothing was done
--
-- Always true: the first write goes by redis.call, so that Redis refuses all or nothing; every further call with the same
-- arguments changes nothing that the first has not changed.
local FRESH_MS = 1200                    -- first use: engines that live have come (they do once a second)
local WIPED_MS = 2500                    -- the same server, and empty: they are connected, and come once a second
local RESTARTED_MS = 11000               -- another server, and empty: they are back after 10 s at most (sync/breaker.h)
local SETTLE_MS = 1000                   -- another server that knows them: for those it has lost with its last second
local LATE_MS = 2000                     -- for one that comes when the others have begun again
local HEARD_MS = 1000                    -- how old an entry becomes before it is written anew
local FORGET_MS = 60000                  -- an engine that was not heard of for so long is not waited for in a later epoch
local WANTED_MS = 5000

if ARGV[1] ~= '1' then return {'CLASH', 0} end
local run, me = ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all, had = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do had[all[i]] = all[i + 1] end

if ARGV[9] == '1' then
  if had['i:' .. me] or had['w:' .. me] then redis.call('HDEL', KEYS[1], 'i:' .. me, 'b:' .. me, 'w:' .. me) end
  return {'OK', now, had['id'] or '', 0, 0}
end

local set, gone = {}, {}                 -- what becomes of the hash: in one write
local function put(field, value)
  set[#set + 1] = field
  set[#set + 1] = value
  had[field] = value
end

local function begin()
  local wait = SETTLE_MS
  if had['id'] == nil then
    wait = FRESH_MS
    if ARGV[4] ~= '' then wait = ARGV[5] == run and WIPED_MS or RESTARTED_MS end
  elseif had['id'] == '' then
    wait = 0
  end
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'i:' then put('w:' .. string.sub(all[i], 3), '1') end
  end
  put('id', ARGV[7])
  put('run', run)
  put('from', tostring(now + wait))
  put('to', tostring(now + RESTARTED_MS))
  put('open', '0')
end

if (had['id'] or '') == '' or (run ~= '' and had['run'] ~= run) then begin() end
if now - tonumber(had['i:' .. me] or '0') > HEARD_MS then put('i:' .. me, tostring(now)) end
if not had['b:' .. me] then put('b:' .. me, tostring(now)) end
for i = 10, #ARGV do
  if had['open'] ~= '1' and not had['i:' .. ARGV[i]] and not had['w:' .. ARGV[i]] then put('w:' .. ARGV[i], '1') end
end
if ARGV[4] ~= '' and ARGV[6] ~= had['id'] then
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

if #set ~= 0 then redis.call('HSET', KEYS[1], unpack(set)) end
if #gone ~= 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end

local out = {'OK', now, had['id'], tonumber(open), math.min(#others, 100)}
for i = 1, out[5] do out[5 + i] = others[i] end
redis.pcall('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - WANTED_MS)
local names = redis.pcall('ZRANGEBYSCORE', KEYS[2], ARGV[8], '+inf', 'LIMIT', 0, 128)
for i = 1, #names do
  if string.sub(names[i], 1, 32) ~= me then out[#out + 1] = string.sub(names[i], 33) end
end
return out
