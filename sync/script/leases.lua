-- leases.lua -- which engines take part in hard limits, and the epoch in which grants are valid. lease.lua keeps each
-- lease.
--
-- An EPOCH begins when Redis may have forgotten, or another store may have granted. There are four signs. The data have
-- another history than those that the epoch began in (master_replid: a restart, a promotion, also of the same server
-- again). There is no epoch (first use, FLUSHALL). An engine comes from an epoch that this store has never met (another
-- store was in use for a while). Or lease.lua found a grant missing. In a new epoch nothing is granted until every
-- engine that took part has restated its grants. Redis knows who took part. If Redis has forgotten the newest engines,
-- the others know them: each engine gets the names of all others, as far as it can hold them. A new engine is granted nothing
-- before the others know it.
--
-- KEYS[1]  the epoch (a hash without expiry). id; run: the master_replid it began in; was: the last sixteen epochs
--          before it; from: nothing is granted before this time; to: an engine that has not come by then is not waited
--          for; open: 1 while grants may be given; n: how many engines take part; late: how many are waited for; tag:
--          the value of their w: fields; c: how often an engine came or went, and j:1, j:2 ...: the last 64 of these
--          changes, "+INSTANCE" or "-INSTANCE"; k, "time cursor": the last tidying. For each engine: i:INSTANCE, when
--          (ms) it was last heard of; b:INSTANCE, its life: when it came; w:INSTANCE, it has not restated everything;
--          g:INSTANCE, the time since which it had not been heard of for a minute
-- KEYS[2]  the requested leases (a sorted set): instance and name of a lease, by when (ms) it last got too little
-- ARGV     1 version, 2 instance, 3 the epoch it knows ("": none, it was never granted anything), 4 the run of that
--          epoch, 5 the epoch in which it has restated everything, 6 an id for a new epoch, 7 since when (ms) it wants
--          the requested leases, 8 "0", or it holds nothing any more, and leaves: the life that ends ("1": whichever it
--          is); 9 the c it knows of that epoch (-1: none), 10 the interval (ms) of its heartbeat as last replied; 11..
--          other engines it knows, if it may know more than Redis does
-- Replies  {status, ms of TIME, id, open, run, life, the interval (ms) of its heartbeat, c, "1" the whole list follows
--          or "0" the changes since the c it knows, how many, "+INSTANCE" or "-INSTANCE" ..., names of requested leases
--          ...}
--          OK; CLASH another version, nothing was done; a replica replies the error READONLY, even if it takes writes
--
-- Always true: every reply comes after a write, so a read-only copy of the store replies nothing of this. The first
-- write uses redis.call, so that Redis refuses all or nothing. Repeating a call with the same arguments changes only
-- times. The script itself looks up which server this is: a connection may outlive a change. The cost of a call does
-- not grow with the number of engines, except for the first call of an epoch. The write that may empty the requested
-- leases is the last access to them: in a cluster, a slot that is being moved refuses a missing key in the middle of a
-- script.
local FRESH_MS = 1200                    -- first use: live engines have come by then
local WIPED_MS = 2500                    -- the same server, but empty: engines are connected, and come by themselves
-- another server, and empty: engines are back after 10 s at most (sync/wire/breaker.h)
local RESTARTED_MS = 11000
-- another server that knows the engines: for those that it lost with its last second
local SETTLE_MS = 1000
local LATE_MS = 2000                     -- for an engine that comes after the others have begun again
local FORGET_MS = 60000                  -- a later epoch does not wait for an engine that was silent for this long
local LIFE_MS = 86400000                 -- after this, its life is over: if it returns, it begins another life
local REQUESTED_MS = 5000
local TIDY_MS = 1000
local AHEAD_MS = 600000                  -- `from` and `to` are never this far ahead
local WAS_MAX, LOG_MAX, NAMED_MAX = 16, 64, 100
-- the interval of a heartbeat: this long, or this many ms for each engine (lease.lua)
local EVERY_MS, EVERY_MORE_MS = 150, 1

if ARGV[1] ~= '2' then return {'CLASH', 0} end
local me, known, resent_in, fresh = ARGV[2], ARGV[3], ARGV[5], ARGV[6]
local info = redis.pcall('INFO', 'replication')
if type(info) ~= 'string' then info = '' end -- INFO is not permitted: a change is noticed only by what is missing
if string.find(info, 'role:slave', 1, true) then return {err = 'READONLY this store is a replica'} end
local run = string.match(info, 'master_replid:(%x+)') or ''
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local names = {'id', 'run', 'was', 'from', 'to', 'open', 'n', 'late', 'tag', 'c', 'k', 'i:' .. me, 'b:' .. me, 'w:' .. me}
local values, had = redis.call('HMGET', KEYS[1], unpack(names)), {}
for i = 1, #names do had[names[i]] = values[i] or nil end
local function count_of(value)           -- nil: this script never wrote it
  return value and #value <= 14 and string.find(value, '^%d+$') and tonumber(value) or nil
end
-- What somebody else wrote there is dropped: then another epoch begins, or this engine's life does.
for _, field in ipairs({'from', 'to'}) do
  if (count_of(had[field]) or now + AHEAD_MS) >= now + AHEAD_MS then had['n'] = nil end
end
for _, field in ipairs({'n', 'late', 'c'}) do
  if had[field] and not count_of(had[field]) then had['n'], had[field] = nil, nil end
end
if #(had['id'] or '') > 32 or #(had['run'] or '') > 40 then had['id'], had['run'] = nil, nil end
if (count_of(had['b:' .. me]) or now + 1) > now then had['b:' .. me] = nil end
local n, late, changes = tonumber(had['n'] or '0'), tonumber(had['late'] or '0'), tonumber(had['c'] or '0')

local set, gone = {}, {}                 -- the changes of the hash, made in one write
local function put(field, value)
  set[#set + 1] = field
  set[#set + 1] = value
  had[field] = value
end
local function drop(field)
  gone[#gone + 1] = field
  had[field] = nil
end
local function note(change)              -- an engine came or went
  changes = changes + 1
  put('j:' .. changes, change)
  if changes > LOG_MAX then drop('j:' .. changes - LOG_MAX) end
end
local function write(call, command, list) -- Lua unpacks only some thousands at once
  for i = 1, #list, 1000 do call(command, KEYS[1], unpack(list, i, math.min(i + 999, #list))) end
end
local function write_all()
  for field, value in pairs({n = n, late = late, c = changes}) do
    value = tostring(math.max(value, 0))
    if had[field] ~= value then put(field, value) end
  end
  write(redis.call, 'HSET', set)
  write(redis.pcall, 'HDEL', gone)       -- if HDEL is forbidden, nothing is tidied
end

if ARGV[8] ~= '0' then
  if ARGV[8] ~= '1' and ARGV[8] ~= had['b:' .. me] then -- a late copy: that life has ended, and the engine came again
    redis.call('HDEL', KEYS[1], 'left')     -- there is no such field; only a master takes this
    return {'OK', now, had['id'] or '', 0, run, '0', 0, -1, '0', 0}
  end
  redis.call('HDEL', KEYS[1], 'i:' .. me, 'b:' .. me, 'w:' .. me, 'g:' .. me)
  local was_late = had['w:' .. me] and had['w:' .. me] == had['tag']
  if was_late then late = late - 1 end
  if had['i:' .. me] then
    n = n - 1
    note('-' .. me)
  end
  if had['i:' .. me] or was_late then write_all() end -- another engine may have named it before it came
  return {'OK', now, had['id'] or '', 0, run, '0', 0, -1, '0', 0}
end

local function has_met(id) return string.find(had['was'] or '', id, 1, true) ~= nil end

local function begin()
  local wait = SETTLE_MS
  if had['id'] == nil then
    wait = FRESH_MS
    if known ~= '' then wait = ARGV[4] == run and math.max(WIPED_MS, 2.5 * tonumber(ARGV[10])) or RESTARTED_MS end
  elseif had['id'] == '' then
    wait = 0
  end
  local was = {}
  for _, id in ipairs({had['id'] or '', known}) do
    if id ~= '' and not has_met(id) and id ~= was[1] then was[#was + 1] = id end
  end
  for id in string.gmatch(had['was'] or '', '[^,]+') do
    if #was < WAS_MAX then was[#was + 1] = id end
  end
  n, late = 0, 0
  local all, waits, tag = redis.call('HGETALL', KEYS[1]), {}, had['tag']
  for i = 1, #all, 2 do
    local kind, who = string.sub(all[i], 1, 2), string.sub(all[i], 3)
    if kind == 'i:' then n = n + 1 end
    -- The second condition: others have named this engine, and it had not come when the epoch ended.
    if kind == 'i:' and now - (count_of(all[i + 1]) or 0) <= FORGET_MS or kind == 'w:' and all[i + 1] == tag then waits[who] = true end
  end
  for who in pairs(waits) do
    put('w:' .. who, fresh)
    late = late + 1
  end
  put('was', table.concat(was, ','))
  put('id', fresh)
  put('tag', fresh)
  put('run', run)
  put('from', string.format('%.0f', now + wait))
  -- if there are many engines, they come rarely
  put('to', string.format('%.0f', now + math.max(RESTARTED_MS, wait, 1.5 * EVERY_MORE_MS * n)))
  put('open', '0')
end

local is_strange = known ~= '' and known ~= had['id'] and not has_met(known)
if (had['id'] or '') == '' or (run ~= '' and had['run'] ~= run) or is_strange or not had['n'] then begin() end

-- Records that this engine is there.
if not had['i:' .. me] then
  n = n + 1
  note('+' .. me)
  drop('g:' .. me)
end
put('i:' .. me, tostring(now))
if not had['b:' .. me] then put('b:' .. me, tostring(now)) end

-- Which engines are waited for.
if had['open'] ~= '1' and #ARGV > 10 then
  local fields = {}
  for i = 11, #ARGV do
    fields[#fields + 1] = 'i:' .. ARGV[i]
    fields[#fields + 1] = 'w:' .. ARGV[i]
  end
  local of = redis.call('HMGET', KEYS[1], unpack(fields))
  for i = 1, #of, 2 do
    if not of[i] and not had[fields[i]] and of[i + 1] ~= had['tag'] and had[fields[i + 1]] ~= had['tag'] then
      put(fields[i + 1], had['tag'])
      late = late + 1
    end
  end
end
local is_late = had['w:' .. me] and had['w:' .. me] == had['tag']
if known ~= '' and resent_in ~= had['id'] then
  if not is_late then
    put('w:' .. me, had['tag'])
    late = late + 1
    if tonumber(had['to']) < now + LATE_MS then put('to', tostring(now + LATE_MS)) end
  end
elseif is_late then
  late = late - 1
  drop('w:' .. me)
end
local open = now >= tonumber(had['from']) and (late == 0 or now >= tonumber(had['to'])) and '1' or '0'
if open == '1' and late ~= 0 then        -- an engine that comes later makes the others wait again
  late = 0
  put('tag', fresh)
end
if open ~= had['open'] then put('open', open) end

-- Looks at some of the fields, and removes engines that were silent for long.
local function tidy(cursor)
  local page = redis.pcall('HSCAN', KEYS[1], cursor, 'COUNT', '64')
  if page.err then return '0' end
  for i = 1, #page[2], 2 do
    local kind, who, value = string.sub(page[2][i], 1, 2), string.sub(page[2][i], 3), page[2][i + 1]
    if kind == 'i:' and who ~= me and now - (count_of(value) or 0) > FORGET_MS and had['w:' .. who] ~= had['tag'] and
      redis.pcall('HDEL', KEYS[1], page[2][i]) == 1 then
      put('g:' .. who, tostring(now))
      note('-' .. who)
      n = n - 1
    elseif kind == 'g:' and who ~= me and now - (count_of(value) or 0) > LIFE_MS then
      drop(page[2][i])
      drop('b:' .. who)
      drop('w:' .. who)
    elseif kind == 'w:' and value ~= had['tag'] and had[page[2][i]] ~= had['tag'] then
      drop(page[2][i])
    end
  end
  return page[1]
end
local tidied, cursor = string.match(had['k'] or '', '^(%d+) (%d+)$')
local tidies = not tidied or math.abs(now - tonumber(tidied)) >= TIDY_MS
local every = math.max(EVERY_MS, math.floor(EVERY_MORE_MS * n))
if tidies then
  cursor = tidy(cursor or '0')
  put('k', now .. ' ' .. cursor)
end
write_all()

-- The other engines, as far as this engine does not know them.
local changes_out, whole = {}, '0'
local function name_all()
  local all
  if n <= NAMED_MAX then
    all = redis.call('HGETALL', KEYS[1])
  else
    all = redis.call('HSCAN', KEYS[1], tonumber(string.sub(me, 1, 8), 16) or 0, 'COUNT', '300')[2]
  end
  whole = '1'
  for i = 1, #all, 2 do
    if #changes_out < NAMED_MAX and string.sub(all[i], 1, 2) == 'i:' and all[i] ~= 'i:' .. me then
      changes_out[#changes_out + 1] = '+' .. string.sub(all[i], 3)
    end
  end
end
local before = known == had['id'] and tonumber(ARGV[9]) or -1
if resent_in == had['id'] then
  if before < 0 or before > changes or changes - before > LOG_MAX then
    name_all()
  elseif before < changes then
    local fields = {}
    for i = before + 1, changes do fields[#fields + 1] = 'j:' .. i end
    for _, change in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
      if change and string.sub(change, 2) ~= me then changes_out[#changes_out + 1] = change end
    end
  end
end

local out = {'OK', now, had['id'], tonumber(open), had['run'], had['b:' .. me], every, changes, whole, #changes_out}
for i = 1, #changes_out do out[#out + 1] = changes_out[i] end
local old = now - math.max(REQUESTED_MS, 3 * every)
local requested = redis.pcall('ZRANGEBYSCORE', KEYS[2], math.max(tonumber(ARGV[7]), old), '+inf', 'LIMIT', 0, 128)
if tidies then redis.pcall('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. old) end
for i = 1, #requested do
  if string.sub(requested[i], 1, 32) ~= me then out[#out + 1] = string.sub(requested[i], 33) end
end
return out
