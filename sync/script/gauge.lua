-- gauge.lua -- what one engine counts as present, for some keys, and the sums over all engines. Sent by
-- sync/message/presence.c.
--
-- KEYS     two for each gauge: the sum (a string, the family's own name), and its contributions (a hash): instance ->
--          "units end number"
-- ARGV     1 instance, 2 lifetime of a contribution in ms, 3 number of this statement; then, for each gauge, what this
--          instance counts
-- Replies  one element for each gauge: the sum of the live contributions, as text; or the error of its keys
--
-- Always true: a contribution is all that its engine counts, so re-sending it changes nothing. An older statement never
-- replaces a newer one. None ends later than one lifetime from now: one that would was written while Redis's clock was
-- ahead. A contribution of 0 is not stored. Contributions expire unless their engine re-sends them, and
-- both keys expire with the last contribution. A contribution below 0 (somebody arrived there and left here) is stored
-- while it is alone, too, for after a wipe it may come first; it counts while somebody counts more than 0. The sum
-- exists only while it is above 0. The write that may empty the hash is the last access to it: in a cluster, a
-- slot that is being moved refuses a missing key in the middle of a script. A store that takes no writes replies no
-- sum: if nothing else was written, a write that changes nothing comes first, and a replica replies READONLY to all.
local pcall = redis.pcall
local instance, life, number = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local wrote = false
local function write(...)                -- returns the error, if there is one
  local said = pcall(...)
  local failed = type(said) == 'table' and said.err ~= nil
  wrote = wrote or not failed
  return failed and said or nil
end

local function state(total, parts, units)
  local was = pcall('GET', total)
  if type(was) == 'table' then return was end
  local all = pcall('HGETALL', parts)
  if all.err then return all end
  local sum, last, any, overtaken, ended = 0, 0, false, false, {} -- any: somebody counts more than 0
  for i = 1, #all, 2 do
    local text, finish, from = string.match(all[i + 1], '^(-?%d+) (%d+) (%d+)$')
    finish = tonumber(finish or '0')
    if finish > now + life then          -- Redis's clock was ahead: its lifetime begins now
      finish = now + life
      write('HSET', parts, all[i], string.format('%s %.0f %s', text, finish, from))
    end
    if all[i] == instance then
      overtaken = finish > now and tonumber(from) > number
      if overtaken then
        sum, last, any = sum + tonumber(text), math.max(last, finish), any or tonumber(text) > 0
      else
        ended[#ended + 1] = instance     -- unless it is re-sent
      end
    elseif finish <= now then
      ended[#ended + 1] = all[i]
    else
      sum, last, any = sum + tonumber(text), math.max(last, finish), any or tonumber(text) > 0
    end
  end
  local own = tonumber(units)
  if not overtaken and own ~= 0 then
    local refused = write('HSET', parts, instance, string.format('%s %.0f %.0f', units, now + life, number))
    if refused then return refused end
    sum, last, any = sum + own, math.max(last, now + life), any or own > 0
    for i = #ended, 1, -1 do
      if ended[i] == instance then table.remove(ended, i) end
    end
  end
  if last > 0 then write('PEXPIREAT', parts, last) end
  for i = 1, #ended, 5000 do write('HDEL', parts, unpack(ended, i, math.min(i + 4999, #ended))) end
  if not any then sum = 0 end
  local text = string.format('%.0f', sum)
  if sum > 0 then
    write('PSETEX', total, last - now, text)
  elseif was then
    write('DEL', total)
  end
  return text
end

local out = {}
for i = 1, #KEYS, 2 do
  local at = (i + 1) / 2
  out[at] = state(KEYS[i], KEYS[i + 1], ARGV[3 + at])
end
if not wrote then
  local refused = write('HDEL', KEYS[2], '')
  if refused and not string.find(refused.err, 'WRONGTYPE', 1, true) then return refused end
end
return out
