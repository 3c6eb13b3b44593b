-- stock.lua -- one act upon a stock of units that are reserved before they are bought.   engine/stock_store.c asks it.
--
-- KEYS     of confirm and cancel: the token alone, which names the counter, and so all the rest. Of reserve and sweep:
--   1  the counter (a string, the family's own name): units that are sold or held
--   2  the stock (a hash): "h" and a reservation's id -> "units buyer", while it is held; "b" and a buyer -> the id of what the
--      buyer holds or has bought
--   3  when reservations return (a sorted set): id -> ms of TIME
--   4  (not of sweep) the token (a hash): "k" the counter's name, "s" set once it is sold. It outlives its hold by ARGV[11]
-- ARGV     1 to 3 as sync/ask.h has them; 4 what: reserve, confirm, cancel, sweep; 5 id; and of reserve: 6 units, 7 limit,
--          8 hold in ms, 9 buyer ("": anybody), 10 when the counter ends (absolute, ms; 0: never), 11 how long the token is
--          remembered after its hold, ms
-- Answers  {ARGV[2], status, units sold or held, reservations held, ms until the next of them returns or -1}
--          reserve   OK      held, or had been by this id: asking again changes nothing
--                    DENIED  there are not so many units left
--                    BUYER   the buyer holds some (the ms are until they return), or has bought (-1): nothing was deducted
--                    LATE    the window is dead here, or this id was asked for before and is over
--                    MORE    nothing was decided: more is due than one call takes back; ask again
--          confirm   OK      sold, now or before;  LATE  returned;  UNKNOWN  no such token (any more)
--          cancel    OK      returned, now or before;  SOLD  too late for that;  UNKNOWN
--          sweep     OK
--
-- Always true: units sold and held are what the counter says (beside what is counted in other ways), never above the limit of
-- a reservation that was made; a reservation is in the hash and in the sorted set, or in neither. One compare decides between
-- confirm and the end of the hold, by Redis's TIME. Every key is read before any is written, so a key of a wrong kind
-- changes nothing; the first write is the one that Redis refuses when it is out of memory. The order of the others is such that a
-- user who may not do one of them loses units rather than sells them twice.
local call = redis.call
local what, id = ARGV[4], ARGV[5]
local counter, stock, due, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local DUE_MAX = 200                      -- taken back in one call: some 500 microseconds

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if what == 'confirm' or what == 'cancel' then
  token = KEYS[1]
  counter = call('HGET', token, 'k')
  if not counter then return {ARGV[2], 'UNKNOWN', 0, 0, -1} end
  local prefix = string.sub(token, 1, #token - #'tw:token:' - #id)
  local rest = string.sub(counter, #prefix + 1)
  stock, due = prefix .. 'tw:stock:' .. rest, prefix .. 'tw:due:' .. rest
end

local used = tonumber(call('GET', counter) or '0')
if not used then return redis.error_reply('ERR the counter holds no number') end
local held, at = call('HGET', stock, 'h' .. id), tonumber(call('ZSCORE', due, id) or '0')
local known = token and call('HMGET', token, 'k', 's') or {}

local function wait_for(reservation)     -- ms until it returns
  local score = reservation and call('ZSCORE', due, reservation)
  return score and math.max(tonumber(score) - now, 0) or -1
end

local function answer(status, wait)
  wait = wait or wait_for(call('ZRANGE', due, 0, 0)[1])
  return {ARGV[2], status, call('GET', counter) or '0', call('ZCARD', due), wait}
end

local function take_back(other)          -- its units return, its buyer may come again
  local record = call('HGET', stock, 'h' .. other)
  local units, buyer = string.match(record or '', '^(%d+) (.*)$')
  local value = tonumber(call('GET', counter) or '0')
  if units then call('HDEL', stock, 'h' .. other) end
  if buyer and buyer ~= '' and call('HGET', stock, 'b' .. buyer) == other then call('HDEL', stock, 'b' .. buyer) end
  call('ZREM', due, other)
  if units and value >= tonumber(units) then call('DECRBY', counter, units) end
end

local over = call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, DUE_MAX)
for _, other in ipairs(over) do take_back(other) end
if held and at <= now then               -- perhaps behind so many others
  take_back(id)
  held = false
end

local function confirm()
  if known[2] then return 'OK' end
  if not held then return 'LATE' end
  call('HSET', token, 's', '1')
  call('HDEL', stock, 'h' .. id)
  call('ZREM', due, id)
  return 'OK'
end

local function cancel()
  if known[2] then return 'SOLD' end
  if held then take_back(id) end
  return 'OK'
end

local function end_with_counter(name, expiry)
  if call('PTTL', name) == -1 then call('PEXPIREAT', name, expiry) end
end

local function hold(units, hold_ms, buyer, expiry, keep_ms)
  call('ZADD', due, now + hold_ms, id)
  call('HSET', token, 'k', counter)
  call('PEXPIRE', token, hold_ms + keep_ms)
  call('INCRBY', counter, units)
  call('HSET', stock, 'h' .. id, units .. ' ' .. buyer)
  if buyer ~= '' then call('HSET', stock, 'b' .. buyer, id) end
  if expiry == '0' then return end
  end_with_counter(counter, expiry)
  end_with_counter(stock, expiry)
  end_with_counter(due, expiry)
end

local function reserve(units, limit, hold_ms, buyer, expiry, keep_ms)
  if held then return 'OK' end
  if known[1] or (expiry ~= '0' and tonumber(expiry) <= now) then return 'LATE' end
  local has = buyer ~= '' and call('HGET', stock, 'b' .. buyer)
  if has then return 'BUYER', wait_for(has) end
  used = tonumber(call('GET', counter) or '0')
  if used + tonumber(units) > tonumber(limit) then
    return wait_for(call('ZRANGE', due, 0, 0)[1]) == 0 and 'MORE' or 'DENIED'
  end
  hold(units, hold_ms, buyer, expiry, keep_ms)
  return 'OK'
end

if what == 'reserve' then return answer(reserve(ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11])) end
if what == 'confirm' then return answer(confirm()) end
if what == 'cancel' then return answer(cancel()) end
return answer('OK')
