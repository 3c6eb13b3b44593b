-- gauge.lua -- what one engine counts as present, for some keys, and the sums over all engines.   sync/parts.c asks it.
--
-- KEYS     for each gauge two: the sum (a string, the family's own name), and its parts (a hash): instance -> "units end number"
-- ARGV     1 instance, 2 life of a part in ms, 3 number of this statement; then for each gauge what this instance counts
-- Answers  one for each gauge: the sum of the parts that live, as text; or the error that its keys gave
--
-- Always true: a part is the whole of what its engine counts, so saying it again changes nothing; an older statement never
-- takes the place of a newer one; a part of 0 is no part. Parts end unless their engine says them again, and both keys end
-- with the last part. A part below 0 stands only beside others (somebody came there and left here): no key is made by it.
local pcall = redis.pcall
local instance, life, number = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function state(total, parts, units)
  local was = pcall('GET', total)
  if type(was) == 'table' then return was end
  local all = pcall('HGETALL', parts)
  if all.err then return all end
  local sum, last, others, overtaken = 0, 0, 0, false
  for i = 1, #all, 2 do
    local text, finish, from = string.match(all[i + 1], '^(-?%d+) (%d+) (%d+)$')
    finish = tonumber(finish or '0')
    if all[i] == instance then
      overtaken = finish > now and tonumber(from) > number
      if overtaken then sum, last = sum + tonumber(text), math.max(last, finish) end
    elseif finish <= now then
      pcall('HDEL', parts, all[i])
    else
      sum, last, others = sum + tonumber(text), math.max(last, finish), others + 1
    end
  end
  local own = tonumber(units)
  if overtaken then
    own = 0
  elseif own > 0 or (own < 0 and others > 0) then
    local said = pcall('HSET', parts, instance, string.format('%s %.0f %.0f', units, now + life, number))
    if type(said) == 'table' then return said end
    sum, last = sum + own, math.max(last, now + life)
  else
    pcall('HDEL', parts, instance)
  end
  if last > 0 then pcall('PEXPIREAT', parts, last) end
  local text = string.format('%.0f', sum)
  if sum > 0 then
    pcall('PSETEX', total, last - now, text)
  else
    pcall('DEL', total)
  end
  return text
end

local out = {}
for i = 1, #KEYS, 2 do
  local at = (i + 1) / 2
  out[at] = state(KEYS[i], KEYS[i + 1], ARGV[3 + at])
end
return out
