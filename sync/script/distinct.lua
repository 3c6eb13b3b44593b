-- distinct.lua -- merges registers of distinct counts into their keys, which PFCOUNT and PFADD know. Sent by
-- sync/message/distinct.c.
--
-- KEYS[1]  the store's marker; then two for each key: its name, and a name beside it that this script uses and deletes
-- ARGV     three for each key: the registers, as Redis keeps them in a string ('': nothing new); when the key expires
--          (absolute, ms; 0: never); what is wanted back: '' nothing, r the registers, c the estimate
-- Replies  m of the marker, or nil: the engine looks at its ledger if that is another one than it knows. Then one element
--          for each key: what was wanted, or nil if there is none; +LATE: the key's time is over, and
--          nothing was merged; or the error of a key that holds something else
--
-- Always true: to merge again changes nothing. A key that PFADD wrote is joined. Redis refuses a script's first write as
-- a whole (out of memory, read-only, too few replicas ...); a replica that takes writes would lose what is merged, so it
-- replies READONLY, too. An error stays with its key.
local pcall = redis.pcall
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local TEMPORARY_MS = 10000               -- should the script be cut short

local said = pcall('INFO', 'replication')
if type(said) == 'string' and string.find(said, 'role:slave', 1, true) then
  return {err = 'READONLY this store is a replica'}
end

local has_nx = true                      -- Redis 7 checks and sets in one command; an older Redis refuses NX
local function heal(name, expiry)        -- a key without expiry gets the one it should have
  if has_nx then
    if type(pcall('PEXPIREAT', name, expiry, 'NX')) == 'number' then return end
    has_nx = false
  end
  if pcall('PTTL', name) == -1 then pcall('PEXPIREAT', name, expiry) end
end

local denied                             -- this user may not do it: the error of all keys
local function merge(name, beside, registers, expiry)
  redis.call('SET', beside, registers, 'PX', TEMPORARY_MS)
  local merged = pcall('PFMERGE', name, beside)
  pcall('DEL', beside)
  if merged.err and (string.find(merged.err, 'permissions to run', 1, true) or string.find(merged.err, "can't run", 1, true)) then
    denied = merged
  end
  if merged.err then return merged end
  if expiry ~= '0' then heal(name, expiry) end
end

local function one(name, beside, registers, expiry, wish)
  if expiry ~= '0' and tonumber(expiry) <= now then return {ok = 'LATE'} end
  local refused = registers ~= '' and merge(name, beside, registers, expiry)
  if refused then return refused end
  if wish == '' then return false end
  local count = pcall('PFCOUNT', name)
  if wish == 'c' or type(count) ~= 'number' then return count end
  return pcall('GET', name)
end

local marker = pcall('HMGET', KEYS[1], 'm')
local out = {not marker.err and marker[1]}
for i = 2, #KEYS, 2 do
  local at = (i - 2) / 2 * 3
  out[i / 2 + 1] = one(KEYS[i], KEYS[i + 1], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  if denied then return denied end
end
return out
