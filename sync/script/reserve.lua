-- reserve.lua -- one operation on units that are reserved before they are bought. Sent by
-- engine/reserve/reserve_redis.c.
--
-- KEYS     of where: the token only. Else:
--   1  the counter (a string, the family's own name): units that are sold or held
--   2  the reservations (a hash): "h" and a reservation's id -> "units buyer", while it is held; "b" and a buyer -> the
--      id of what the buyer holds or has bought
--   3  when reservations expire (a sorted set): id -> ms of TIME
--   4  (not of sweep) the token (a hash): "k" the counter's name, "s" set once it is sold. It outlives its reservation
--      by ARGV[11]. Without a reservation it is a mark that lives for eleven minutes. A reservation that comes after its
--      mark does nothing. "d" has the status that it was answered; without "d" it was cancelled. "k" is empty if the
--      cancel did not know the counter
-- ARGV     1 to 3 as in sync/ask/call_text.h; 4 what: where, reserve, confirm, cancel, sweep; 5 id; of where: 6 what
--          follows, confirm or cancel (a cancel of an unknown token leaves a mark); and of reserve: 6 units,
--          7 limit, 8 lease time in ms, 9 buyer ("": anybody), 10 when the counter expires (absolute, ms; 0: never), 11
--          how long the token is remembered after its reservation, ms
-- Replies  of where: {ARGV[2], OK, the counter's name}: it names all keys of confirm and cancel;  {ARGV[2], UNKNOWN}
--          no such token (any more). Else {ARGV[2], status, units sold or held, reservations held, ms until the next of
--          them expires or -1}:
--          reserve   OK      held, or was already by this id: repeating it changes nothing
--                    DENIED  not so many units are left
--                    BUYER   the buyer holds some (the ms are until they expire), or has bought (-1): nothing was
--                    deducted
--                    LATE    the window is over here, or this id was requested before and has ended
--                    MORE    nothing was decided: more have expired than one call takes back; send it again
--          confirm   OK      sold, now or before;  LATE  expired or cancelled;  UNKNOWN
--          cancel    OK      returned, now or before;  SOLD  too late for that;  UNKNOWN
--          sweep     OK
--          cancel of a request to reserve (ARGV[3] is "0"): OK: it holds nothing, and never will;  SOLD
--          all of these: {ARGV[2], BAD} the counter holds no number; nothing was done
--
-- Always true: the counter has the units sold and held (and whatever is counted in other ways). It never exceeds the
-- limit of a reservation that was made. A reservation is in the hash and in the sorted set, or in neither. One
-- comparison with Redis's TIME decides between confirm and expiry.
-- Every key is read before any is written, so a key of a wrong type changes nothing. The first write is one that Redis
-- refuses when it is out of memory, unless units only return. The write that may empty a key is the last access to it:
-- in a cluster, a slot that is being moved refuses a missing key in the middle of a script. Before units return, writes
-- that change nothing show that all of it is allowed. So a user without one of the rights changes no count, and the same
-- call does all of it later. A store that takes no writes answers nothing: if nothing else is written, a write that
-- changes nothing comes first, and a replica replies READONLY.
local call = redis.call
local what, id = ARGV[4], ARGV[5]
local counter, stock, due, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local DUE_MAX = 200                      -- taken back in one call: about 500 microseconds
local MARK_MS = 660000                   -- as long as the notes in calls.lua

-- A request to reserve that comes from now on does nothing.
local function mark(name, of, status)
  call('HDEL', name, '')                 -- Redis refuses no later write of this script for want of memory
  call('HSET', name, 'k', of)
  if status then call('HSET', name, 'd', status) end
  call('PEXPIRE', name, MARK_MS)
end

if what == 'where' then
  local name = call('HGET', KEYS[1], 'k')
  if name and name ~= '' then return {ARGV[2], 'OK', name} end
  if ARGV[6] == 'cancel' then mark(KEYS[1], '') else call('HDEL', KEYS[1], '') end
  return {ARGV[2], 'UNKNOWN'}
end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- ---- what is there ----

local value = call('GET', counter) or '0'
local used = string.find(value, '^%-?%d+$') and tonumber(value)
if not used then
  call('HDEL', token or stock, '')
  return {ARGV[2], 'BAD'}
end
local held_count = call('ZCARD', due)
local record, at = call('HGET', stock, 'h' .. id), tonumber(call('ZSCORE', due, id) or '0')
local held = record and at > now
local known = token and call('HMGET', token, 'k', 's', 'd') or {}

local back, is_back = call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, DUE_MAX), {}
local ahead = call('ZRANGE', due, #back, #back + 1, 'WITHSCORES')
for i = 1, #back do is_back[back[i]] = true end
local function goes_back(other)
  if is_back[other] then return end
  is_back[other] = true
  back[#back + 1] = other
end
if record and not held then goes_back(id) end        -- there may be that many others before it

local function wait_for(score)           -- ms until then
  return score and math.max(tonumber(score) - now, 0) or -1
end

local function next_wait()               -- until the next remaining reservation expires
  for i = 1, #ahead, 2 do
    if not is_back[ahead[i]] then return wait_for(ahead[i + 1]) end
  end
  return -1
end

-- ---- what is to become of it ----

local function confirm()
  if known[1] ~= counter then return 'UNKNOWN' end
  return known[2] and 'OK' or held and 'SELL' or 'LATE'
end

local function cancel()
  if known[1] ~= counter then return 'UNKNOWN' end
  if known[2] then return 'SOLD' end
  if held then goes_back(id) end
  return 'OK'
end

local function undo()                    -- of a request to reserve, which may not have come yet
  if known[2] then return 'SOLD' end
  if held then goes_back(id) end
  return 'OK'
end

local gone, returned = {}, 0             -- fields of the hash; units
local function take_back()               -- their units return, their buyers may reserve again
  if #back == 0 then return end
  local fields, buyers, whose = {}, {}, {}
  for i = 1, #back do fields[i] = 'h' .. back[i] end
  local records = call('HMGET', stock, unpack(fields))
  for i = 1, #back do
    local units, buyer = string.match(records[i] or '', '^(%d+) (.*)$')
    if units then gone[#gone + 1] = fields[i] end
    if units and used - returned >= tonumber(units) then returned = returned + tonumber(units) end
    if buyer and buyer ~= '' then
      buyers[#buyers + 1] = 'b' .. buyer
      whose[#buyers] = back[i]
    end
  end
  if #buyers == 0 then return end
  local has = call('HMGET', stock, unpack(buyers))
  for i = 1, #buyers do
    if has[i] == whose[i] then gone[#gone + 1] = buyers[i] end
  end
end

local function reserve(units, limit, buyer, expiry)
  if held then return 'OK' end
  if known[3] then return known[3] end
  if known[1] or (expiry ~= '0' and tonumber(expiry) <= now) then return 'LATE' end
  local has = buyer ~= '' and call('HGET', stock, 'b' .. buyer)
  if has and not is_back[has] then return 'BUYER', wait_for(call('ZSCORE', due, has)) end
  if tonumber(units) > tonumber(limit) - (used - returned) then return next_wait() == 0 and 'MORE' or 'DENIED' end
  return 'HOLD'
end

local status, wait = 'OK', nil
if what == 'confirm' then status = confirm() end
if what == 'cancel' then status = cancel() end
if what == 'reserve' and ARGV[3] == '0' then status = undo() end
take_back()
if what == 'reserve' and ARGV[3] ~= '0' then status, wait = reserve(ARGV[6], ARGV[7], ARGV[9], ARGV[10]) end

-- ---- the writes ----

-- The units are charged by now, so this may fail.
local function end_with_counter(name, expiry)
  if redis.pcall('PTTL', name) == -1 then redis.pcall('PEXPIREAT', name, expiry) end
end

-- What removes entries is allowed. It comes last.
local function may_remove()
  if #gone ~= 0 then call('HDEL', stock, '') end
  if #back ~= 0 then call('ZREM', due, '') end
end

local function hold(units, ttl_ms, buyer, expiry, keep_ms)
  call('ZADD', due, now + ttl_ms, id)
  call('HSET', token, 'k', counter)
  call('PEXPIRE', token, ttl_ms + keep_ms)
  may_remove()
  call('INCRBY', counter, returned == 0 and units or string.format('%.0f', units - returned))
  call('HSET', stock, 'h' .. id, units .. ' ' .. buyer)
  if buyer ~= '' then call('HSET', stock, 'b' .. buyer, id) end
  used, held_count = used + units, held_count + 1
  wait = next_wait()
  if wait < 0 or wait > tonumber(ttl_ms) then wait = tonumber(ttl_ms) end
  for i = #gone, 1, -1 do                -- of an earlier one of the same buyer
    if buyer ~= '' and gone[i] == 'b' .. buyer then table.remove(gone, i) end
  end
  if expiry == '0' then return end
  end_with_counter(counter, expiry)
  end_with_counter(stock, expiry)
  end_with_counter(due, expiry)
end

if status == 'HOLD' then
  hold(ARGV[6], ARGV[8], ARGV[9], ARGV[10], ARGV[11])
  status = 'OK'
else
  if status == 'SELL' then
    gone[#gone + 1] = 'h' .. id
    goes_back(id)                        -- no units return: this only removes it from the sorted set
    may_remove()
    call('HSET', token, 's', '1')
    status = 'OK'
  elseif what == 'reserve' and ARGV[3] == '0' and not known[1] then
    mark(token, counter)
  elseif what == 'reserve' and ARGV[3] == '2' and not known[1] and status ~= 'OK' and status ~= 'LATE' then
    mark(token, counter, status)         -- a copy of it may still come
  elseif #back == 0 then
    call('HDEL', token or stock, '')
  end
  may_remove()
  if returned ~= 0 then call('DECRBY', counter, string.format('%.0f', returned)) end
end
if #gone ~= 0 then call('HDEL', stock, unpack(gone)) end
if #back ~= 0 then held_count = held_count - call('ZREM', due, unpack(back)) end
return {ARGV[2], status, string.format('%.0f', used - returned), held_count, wait or next_wait()}
