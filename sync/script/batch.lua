-- batch.lua -- applies one frozen batch of one engine, exactly once. docs/ARCHITECTURE.md shows the flow that leads
-- here.
--
-- KEYS[1]  the ledger of one instance (a hash): v version; n the last number applied; p and m the running sums of what
--          was added and taken away; and under "0".."7" (number % 8) the last eight batches: "number nonce". Once a
--          whole batch is done, its field ends with " +" and the items that failed ("4e" refused, "9l" late)
-- KEYS[2]  the store's marker (a hash without expiry): m random, missing or different when the store was wiped; r when
--          it was made; in a cluster k, how many keys the slot held before that which may be left of a state that was
--          lost in part (-1: nobody may count them): such a slot is not restored; c where tidying continues; and for
--          each instance, under the last 32 bytes of its ledger's name, when it last wrote. If an instance wrote after
--          r and is missing here, the store forgot it: the store went back to a state before the instance existed. If
--          only its ledger is missing, the ledger was evicted
-- KEYS[3..] the counters; with number 0: the earlier ledgers of this engine, the newest first
-- ARGV     1 version, 2 number, 3 the number before it, 4 nonce, 5 the ledger's lifetime in ms (below a day: the engine
--          has closed, and owes nothing), 6 p and 7 m with this
--          batch included, 8 a marker for a store that has none; then groups of items: kind, expiry (absolute, ms),
--          count, and per item
--             (with number 0: none, but in a cluster the key slot, see k of the marker)
--             r, R  nothing: only the total is requested (R: and the end of the key's life)
--             e     delta: a key without expiry
--             w, W  delta: a key that expires at the group's expiry (W: check that it has one, whatever INCRBY replies)
--             f, F  delta, end: the key expires at the end of its life (F: reply the end, whatever INCRBY replies)
--             n, N  no items, but names that the closer of a window needs (close_election.lua): of keys in which this
--                   engine counts for the first time in that window. Behind the count: the window's start; from when
--                   on an engine that has not counted in it may look after it; 1 if this engine has recorded names of
--                   the window before; 1 if any of these counts is new to all stores; where the first of these items
--                   is in the reply; where its delta is in ARGV; how many arguments each of these items has; how many
--                   arguments follow, and these: names in the order of the items, as "\0size:name" and more of
--                   "size:name". In KEYS: the set of names, and with n the family's list of windows and the window's
--                   state (N: keys lie in several stores, and these two elsewhere). Such groups come last
--          Before r, e, w or W there may be the shape: h, a field of a hash, or z, a member of a sorted set. Then the
--          name of that field or member is the item's last argument. Such groups follow all groups of strings. A name
--          may occur in KEYS more than once
-- Replies  {status, ms of TIME, ledger's number, marker, p, m, done, keys whose expiry could not be set, items ...}
--          OK    applied now; items: total ("?": it cannot be read), {total, end}, +LATE, or the error of INCRBY
--          DUP   was applied before; done is 0 if that run was cut short. Items as they are now
--          GAP   not the next number; nothing was done
--          PAST  the ledger is at least eight numbers further, so it no longer knows whose batch this was; nothing was
--                done
--          GONE  no ledger, or what has its name is none (a key of another type, or no number in n), and stays as it
--                is; nothing was done. Only number 0, which carries no items, makes a ledger. Two more elements: 1 if
--                the marker knows the instance, else 0; and r
--          KEPT  to number 0: the earlier ledger is here. None was made; number and sums are those of the earlier one
--          CLASH the number belongs to another batch, or the version is another one; nothing was done
--          (OK to number 0 also has the two elements of GONE, as they were before this call: whether the marker knew
--          the instance of the earlier ledger (2: it did not, but an older ledger is here; 0: no earlier one was
--          named); and r (0: there was no marker, this call has made it). Where a slot was given, a third: k of the
--          marker)
--          Where a key of another type has the marker's name, that key stays as it is, and the marker is nil
--          All statuses but OK and DUP deny something, and an old or empty copy of the store would deny it as well. So
--          the script first makes a write that changes nothing, and then asks for the role. A replica denies nothing:
--          it replies READONLY
--
-- Always true: Redis refuses a script's first write as a whole (out of memory, read-only, too few replicas ...). The
-- ledger makes that write, with redis.call. Everything after it uses pcall, because Redis does not roll a script back.
-- An error stays with its key, and the last write records that everything was done. Deltas stay strings: exact beyond
-- 2^53. A total beyond 2^53 is fetched as text.
local keys, args, pcall, type, tonumber = KEYS, ARGV, redis.pcall, type, tonumber
local EXACT = 9007199254740991
local SCORE_MAX = 9007199254740992       -- 2^53: a score is a double
-- 6 h: the greatest age of an instance's entry in the marker, while the instance writes
local REFRESH_MS = 21600000
local FORGET_MS = 172800000              -- 48 h: a ledger lives 24 h; after 48 h its engine needs no entry any more
local DAY_MS = 86400000                  -- 24 h: a lifetime below this is that of an engine that has closed
local LOOKED_AT_MAX = 1000               -- keys of a slot, some 0.5 us each; more of them are counted, not looked at

local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local number, slot = args[2] + 0, args[2] % 8 .. ''
local id = string.sub(keys[1], -32)
local function is_other(said)            -- a key of another type has that name: it is no hash of Tallywheel
  return said.err ~= nil and string.find(said.err, 'WRONGTYPE', 1, true) ~= nil
end
local function read(name, ...)           -- and then none of its fields exist
  local said = redis.pcall('HMGET', name, ...)
  if not said.err then return said, false end
  if is_other(said) then return {false, false, false, false, false}, true end
  return redis.call('HMGET', name, ...), false
end

local ledger, taken = read(keys[1], 'v', 'n', 'p', 'm', slot)
local store = read(keys[2], 'm', id)
local marker, born = store[1], tonumber(store[2] or '')
local out = {'OK', now, ledger[2], marker, ledger[3], ledger[4], 1, 0}

local function enter()                   -- the marker names the store, and gets an entry for this instance
  if not marker and type(redis.pcall('HSET', KEYS[2], 'm', ARGV[8], 'r', now)) == 'number' then out[4] = ARGV[8] end
  -- a copy of an engine that has closed, such as a snapshot of its machine, needs the entry for a day: without it the
  -- store would seem to be older than the ledger
  if tonumber(ARGV[5]) < DAY_MS then
    redis.pcall('HSET', KEYS[2], id, string.format('%.0f', now + DAY_MS - FORGET_MS))
  elseif not born or now - born > REFRESH_MS or born > now + REFRESH_MS then
    redis.pcall('HSET', KEYS[2], id, now)
  end
end

local dup, failed_before = false, {}
if ledger[1] ~= '1' or ledger[2] ~= args[3] or args[1] ~= '1' or number <= args[3] + 0 then
  -- ---- anything but the next batch ----

  -- The last number of a ledger; nil: this script never wrote it, so what holds it is no ledger. Each batch leaves its
  -- number under its slot, too: a last number that is not the greatest of those is none that this script wrote.
  local function last_of(name, version, text)
    local count = version == '1' and text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
    if not count or string.format('%.0f', count) ~= text then return nil end
    if count == 0 or text == ARGV[3] then return count end
    local slots, greatest = redis.pcall('HMGET', name, '0', '1', '2', '3', '4', '5', '6', '7'), 0
    for i = 1, 8 do greatest = math.max(greatest, tonumber(string.match(slots[i] or '', '^(%d+) ') or '0')) end
    return greatest == count and count or nil
  end

  local function is_replica()              -- a replica that takes writes refuses nothing, and loses them
    local said = redis.pcall('INFO', 'replication')
    return type(said) == 'string' and string.find(said, 'role:slave', 1, true) ~= nil
  end
  local REPLICA = {err = 'READONLY this store is a replica'}

  -- Says no, once a write that changes nothing was taken: Redis refuses it where it would refuse a batch; a user
  -- without PEXPIRE cannot try it.
  local function deny(status)
    if ledger[1] then
      redis.call('HSET', KEYS[1], 'v', ledger[1])
    elseif taken then                      -- a store that takes no writes refuses before it looks at the key
      if not is_other(redis.pcall('HSET', KEYS[1], 'v', '1')) then redis.call('HSET', KEYS[1], 'v', '1') end
    else
      local said = redis.pcall('PEXPIRE', KEYS[1], ARGV[5])
      local refusal = type(said) ~= 'number' and said.err
      if refusal and not (string.find(refusal, 'permissions to run', 1, true) or string.find(refusal, "can't run", 1, true)) then
        redis.call('PEXPIRE', KEYS[1], ARGV[5])
      end
    end
    if is_replica() then return REPLICA end
    out[1] = status
    return out
  end

  local last = last_of(keys[1], ledger[1], ledger[2])
  if not last then ledger[2], out[3] = false, false end
  if args[1] ~= '1' then return deny('CLASH') end

  if number == 0 then
    local function tidy()                    -- looks at some of the entries, whenever a ledger is opened
      local cursor = string.match(pcall('HMGET', keys[2], 'c')[1] or '', '^%d+$') or '0'
      local page = pcall('HSCAN', keys[2], cursor, 'COUNT', 64)
      if not page[2] then page = {'0', {}} end -- somebody has changed the cursor
      for i = 1, #page[2], 2 do
        local who, at_ms = page[2][i], tonumber(page[2][i + 1]) or 0
      if #who == 32 and now - at_ms > FORGET_MS then pcall('HDEL', keys[2], who) end
      end
      if page[1] ~= cursor then pcall('HSET', keys[2], 'c', page[1]) end
    end

    -- A batch may have added to it: a whole number, or a hash or a sorted set with one among the first. What cannot be
    -- looked at may be one.
    local function may_be_counted(name)
      local value = pcall('GET', name)
      if type(value) == 'string' then return string.find(value, '^-?%d+$') ~= nil end
      if not value or not is_other(value) then return value end
      local page = pcall('HSCAN', name, '0', 'COUNT', 64)
      if page.err and is_other(page) then page = pcall('ZSCAN', name, '0', 'COUNT', 64) end
      if page.err then return not is_other(page) end
      for i = 2, #page[2], 2 do
        if (tonumber(page[2][i]) or 0.5) % 1 == 0 then return true end
      end
      return #page[2] == 0                   -- a page may be empty
    end

    -- How many keys of the slot may be left of a state that was lost in part. -1: this user may not ask. What a store
    -- may hold that nobody has opened yet does not count: names without this marker's prefix; keys that are written by
    -- calls which wait for Redis (no call waits for an opening); and values to which no batch can have added.
    local function count_survivors()
      local said, count = pcall('CLUSTER', 'COUNTKEYSINSLOT', args[9]), 0
      if type(said) ~= 'number' then return -1 end
      local names = said > 0 and said <= LOOKED_AT_MAX and pcall('CLUSTER', 'GETKEYSINSLOT', args[9], said)
      local prefix = string.match(keys[2], '^(.*)tw:marker')
      if not names or not prefix or #names ~= said then return said end
      local of_calls = {}
    for word in string.gmatch('stock due token hold calls log bucket once lock fence', '%l+') do
      of_calls[word] = true
    end
      for i = 1, said do
        local name = names[i]
        local rest = string.sub(name, 1, #prefix) == prefix and string.sub(name, #prefix + 1)
        if rest and string.sub(rest, 1, 3) == 'tw:' then
          if not of_calls[string.match(rest, '^tw:(%l+):') or ''] then count = count + 1 end
        elseif rest and may_be_counted(name) then
          count = count + 1
        end
      end
      return count
    end

    if last or taken then return deny('CLASH') end
    if is_replica() then return REPLICA end
    if keys[3] then
      local before = read(keys[3], 'v', 'n', 'p', 'm')
      if last_of(keys[3], before[1], before[2]) then
        out[3], out[5], out[6] = before[2], before[3], before[4]
        return deny('KEPT')
      end
    end
    local known = read(keys[2], string.sub(keys[3] or '', -32), 'r')
    out[9], out[10] = known[1] and 1 or 0, tonumber(known[2] or '') or 0
    for i = 4, #keys do
      if not known[1] and read(keys[i], 'n')[1] then out[9] = 2 end
    end
    local survivors = args[9] and count_survivors()
    redis.call('HSET', keys[1], 'v', '1', 'n', '0', 'p', '0', 'm', '0')
    if pcall('PEXPIRE', keys[1], args[5]) ~= 1 then out[8] = 1 end
    enter()
    if survivors then
      if not marker then pcall('HSET', keys[2], 'k', survivors) end
      out[11] = tonumber(pcall('HMGET', keys[2], 'k')[1] or '') or -1
    end
    tidy()
    out[3] = '0'
    return out
  end

  if not last then
    out[9], out[10] = store[2] and 1 or 0, tonumber(read(keys[2], 'r')[1] or '') or 0
    return deny('GONE')
  end
  if last < number then return deny('GAP') end

  local n, nonce, done, list = string.match(ledger[5] or '', '^(%d+) (%x+) ?(%+?)(.*)$')
  if n and tonumber(n) > number and tonumber(n) <= last then return deny('PAST') end
  if n ~= args[2] or nonce ~= args[4] then return deny('CLASH') end
  dup, out[1] = true, 'DUP'
  if done ~= '+' then out[7] = 0 end
  for index, why in string.gmatch(list, '(%d+)(%a)') do failed_before[tonumber(index)] = why end
else
  redis.call('HSET', keys[1], 'n', args[2], 'p', args[6], 'm', args[7], slot, args[2] .. ' ' .. args[4])
  if pcall('PEXPIRE', keys[1], args[5]) ~= 1 then out[8] = 1 end
  out[3], out[5], out[6] = args[2], args[6], args[7]
  enter()
end

local LATE, FAILED = {ok = 'LATE'}, {err = 'ERR refused when it was first applied'}
local failed, fails = {}, 0
local created = 0                        -- items, of windows, which no store had before
local at, key, item = 9, 2, 8            -- positions in ARGV, in KEYS, in the reply

local has_nx = true                      -- Redis 7 checks and sets in one command; an older Redis refuses NX
local function heal(name, expiry)        -- a key without expiry gets the one it should have
  if has_nx then
    if type(redis.pcall('PEXPIREAT', name, expiry, 'NX')) == 'number' then return end
    has_nx = false
  end
  if redis.pcall('PTTL', name) ~= -1 then return end
  if redis.pcall('PEXPIREAT', name, expiry) ~= 1 then out[8] = out[8] + 1 end
end

local function ends(name)                -- when the key expires; nil: no such key, or no expiry
  local ttl = redis.pcall('PTTL', name)
  if type(ttl) == 'number' and ttl >= 0 then return now + ttl end
end

-- The value of a key; '?' instead of an error, which would say that its delta was refused. With its end, if requested.
-- Changes nothing.
local function told(name, with_end)
  local value = redis.pcall('GET', name)
  if type(value) == 'table' then value = '?' end
  local life = with_end and value and ends(name)
  if life then return {value, life} end
  return value
end

local function fail(index, why)
  fails = fails + 1
  failed[fails] = (index - 8) .. why
end

-- ---- strings ----

local kind = args[at]
while kind and #kind == 1 and kind ~= 'n' and kind ~= 'N' do
  local expiry, count = args[at + 1], args[at + 2] + 0
  at = at + 2                            -- before the first argument of an item
  if kind == 'r' or kind == 'R' then
    for i = 1, count do out[item + i] = told(keys[key + i], kind == 'R') end
  elseif dup then
    local own = kind == 'f' or kind == 'F'
    for i = 1, count do
      local why = failed_before[item + i - 8]
      if why then out[item + i] = why == 'l' and LATE or FAILED else out[item + i] = told(keys[key + i], own) end
    end
    at = at + (own and 2 or 1) * count
  elseif kind == 'f' or kind == 'F' then
    for i = 1, count do
      local name, delta, finish = keys[key + i], args[at + 1], args[at + 2]
      local value = LATE
      at = at + 2
      if tonumber(finish) <= now then
        fail(item + i, 'l')
      else
        value = pcall('INCRBY', name, delta)
        if type(value) ~= 'number' then
          fail(item + i, 'e')
        else
          local newborn = value == tonumber(delta)
          if value > EXACT or value < -EXACT then value = told(name) end
          if newborn or kind == 'F' then
            heal(name, finish)
            value = {value, ends(name) or tonumber(finish)}
          end
        end
      end
      out[item + i] = value
    end
  elseif kind ~= 'e' and tonumber(expiry) <= now then
    for i = 1, count do                  -- the window is over here: a past expiry would delete what others counted
      out[item + i] = LATE
      fail(item + i, 'l')
    end
    at = at + count
  else
    local look_always, look_newborn = kind == 'W', kind == 'w'
    local seen, seen_number              -- equal deltas often follow each other: one conversion for a run of them
    for i = 1, count do
      local delta = args[at + i]
      local value = pcall('INCRBY', keys[key + i], delta)
      if type(value) ~= 'number' then
        fail(item + i, 'e')
      else
        if delta ~= seen then seen, seen_number = delta, delta + 0 end
        if value == seen_number then
          created = created + 1
          if look_newborn then heal(keys[key + i], expiry) end
        end
        if look_always then heal(keys[key + i], expiry) end
        if value > EXACT or value < -EXACT then value = told(keys[key + i]) end
      end
      out[item + i] = value
    end
    at = at + count
  end
  key, item, at = key + count, item + count, at + 1
  kind = args[at]
end

if kind then                             -- the other groups: few batches make their functions

  -- ---- hashes and sorted sets ----

  local function look_inside(shape, name, inner)
    local value = pcall(shape == 'h' and 'HGET' or 'ZSCORE', name, inner)
    if type(value) == 'table' then return '?' end
    if shape == 'h' or not value then return value end
    local score = tonumber(value)          -- as text it may be 1e+15
    if score % 1 ~= 0 or score > SCORE_MAX or score < -SCORE_MAX then return '?' end
    return score
  end

  -- Adds to a score what it can hold exactly: whole numbers within 2^53. Answers the new score, or an error; and
  -- whether the member is new.
  local function add_score(name, inner, delta)
    local text, units = pcall('ZSCORE', name, inner), tonumber(delta)
    if type(text) == 'table' then return text end
    if not units then return {err = 'ERR value is not an integer'} end
    local score = tonumber(text or '0')
    if score % 1 ~= 0 then return {err = 'ERR the score is not an integer'} end
    local sum_fits = units <= SCORE_MAX - score and units >= -SCORE_MAX - score
    local both_fit = score <= SCORE_MAX and score >= -SCORE_MAX and units <= SCORE_MAX and units >= -SCORE_MAX
    local is_exact = string.format('%.0f', units) == delta -- 2^53 + 1 has become 2^53
    if not (sum_fits and both_fit and is_exact) then return {err = 'ERR increment or decrement would overflow 2^53'} end
    local said = pcall('ZINCRBY', name, delta, inner)
    if type(said) == 'table' then return said end
    return score + units, not text
  end

  local function add_inside(shape, name, inner, delta)
    if shape == 'z' then return add_score(name, inner, delta) end
    local value = pcall('HINCRBY', name, inner, delta)
    if type(value) ~= 'number' then return value end
    return value, value == tonumber(delta)
  end

  local healed                             -- the last name whose expiry was looked at: a name has many members
  local function apply_inside(shape, kind, expiry, count)
    local width, late = kind == 'r' and 1 or 2, kind ~= 'r' and kind ~= 'e' and tonumber(expiry) <= now
    for _ = 1, count do
      key, item = key + 1, item + 1
      local name, inner, why = keys[key], args[at + width - 1], dup and failed_before[item - 8]
      local delta, value, is_new = args[at], nil, false
      at = at + width
      if why then value = why == 'l' and LATE or FAILED
      elseif dup or kind == 'r' then value = look_inside(shape, name, inner)
      elseif late then
        value = LATE
        fail(item, 'l')
      else
        value, is_new = add_inside(shape, name, inner, delta)
        if type(value) ~= 'number' then
          fail(item, 'e')
        else
          if is_new then created = created + 1 end
          if (kind == 'W' or kind == 'w' and is_new) and name ~= healed then
            heal(name, expiry)
            healed = name
          end
          if shape == 'h' and (value > EXACT or value < -EXACT) then value = look_inside(shape, name, inner) end
        end
      end
      out[item] = value
    end
  end

  -- ---- names for the closer of a window ----

  -- Counts come into a window that is being closed, or is closed, and no engine has said that they would: it is closed
  -- again.
  local function mark_late(state)
    local said, life = told(state), pcall('PTTL', state)
    local kind, who, marks = string.match(said or '', '^([cd]) (%x+ ?%d*) ?(a?)$')
    if kind and type(life) == 'number' and life > 0 then
      pcall('SET', state, kind .. ' ' .. who .. ' ' .. marks .. '+', 'PX', life)
    end
    return string.sub(said or '', 1, 1) == 'd'
  end

  -- How many of these items, from the first on, this batch has created.
  local function count_created(item_at, delta_at, width, count)
    local seen, seen_number
    for i = 0, count - 1 do
      local delta = args[delta_at + i * width]
      if delta ~= seen then seen, seen_number = delta, tonumber(delta) end
      if dup or out[item_at + i] ~= seen_number then return i end
    end
    return count
  end

  -- Names of keys that this batch has created are in no other batch: they are recorded as they came, many in one
  -- member. Each other name is a member of its own, which all engines have in common.
  local function own_names(item_at, delta_at, width, first, last)
    local members, i = {}, 0
    for at_names = first, last do
      local names, created, from = args[at_names], {'\0'}, 2
      while from <= #names do
        local colon = string.find(names, ':', from, true)
        local size = colon and tonumber(string.sub(names, from, colon - 1))
        if not size then break end         -- no engine sends it
        local to = colon + size
        local name = string.sub(names, colon + 1, to)
        if count_created(item_at + i, delta_at + i * width, width, 1) == 1 then
          created[#created + 1] = string.sub(names, from, to)
        else
          members[#members + 1] = string.byte(name) == 0 and '\0' .. string.sub(names, from, to) or name
        end
        from, i = to + 1, i + 1
      end
      if created[2] then members[#members + 1] = table.concat(created) end
    end
    return members
  end

  -- An engine that has recorded names before finds its set again. If the set is gone, others' names are gone with it;
  -- an empty name says so to the closer. So does a window that is listed, but has no names.
  local function record_names(kind, expiry, count)
    local start, due, knows, is_new = args[at], tonumber(args[at + 1]), args[at + 2] == '1', args[at + 3] == '1'
    local set, windows, state = keys[key + 1], keys[key + 2], keys[key + 3]
    local item_at, delta_at, width = tonumber(args[at + 4]), tonumber(args[at + 5]), tonumber(args[at + 6])
    local first, last = at + 8, at + 7 + tonumber(args[at + 7])
    at, key = last + 1, key + (kind == 'n' and 3 or 1)
    if dup and out[7] == 1 or tonumber(expiry) <= now then return end
    local was_there = pcall('EXISTS', set) == 1
    local added
    if created == item - 8 or count_created(item_at, delta_at, width, count) == count then
      added = pcall('SADD', set, unpack(args, first, last))
    else
      added = pcall('SADD', set, unpack(own_names(item_at, delta_at, width, first, last)))
    end
    local is_lost = type(added) ~= 'number' -- the window is listed, so whoever makes the set learns of it
    if is_lost and kind == 'N' then return end
    local is_closed = kind == 'n' and is_new and mark_late(state)
    if was_there and not is_lost then return end
    local listed = kind == 'n' and pcall('ZADD', windows, string.format('%.0f', math.max(due, now)), start)
    if not is_lost then
      heal(set, expiry)
      if (knows or listed == 0) and not is_closed then pcall('SADD', set, '') end
    end
    if listed ~= 1 then return end
    local life = pcall('PTTL', windows)
    if type(life) == 'number' and now + life < tonumber(expiry) then pcall('PEXPIREAT', windows, expiry) end
  end

  while args[at] do
    local kind, expiry, count = args[at], args[at + 1], tonumber(args[at + 2])
    at = at + 3
    if #kind == 2 then
      apply_inside(string.sub(kind, 1, 1), string.sub(kind, 2), expiry, count)
    else
      record_names(kind, expiry, count)
    end
  end
end

if not dup then
  pcall('HSET', keys[1], slot, args[2] .. ' ' .. args[4] .. ' +' .. (failed[1] and table.concat(failed, ',') or ''))
end
return out
