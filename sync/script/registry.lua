-- registry.lua -- the registry of live engines: each says every second that it is there, less often in a crowd, and learns how many are.
--
-- KEYS[1]  the registry (a sorted set): instances by when (ms) they are taken for dead; ends a minute after the last word, or later
-- ARGV     1 version, 2 instance, 3 how long (ms) this word is good for at least
-- Answers  {OK, ms of TIME, how many live, how often (ms) it is to be said}; CLASH another version, nothing was done
--
-- Always true: saying it again changes nothing but times; the first write goes by redis.call, so that Redis refuses all or
-- nothing.
local FORGET_MS = 60000
local EVERY_MS, EVERY_MORE_MS = 1000, 0.5 -- so often, or so many ms for each engine that there is
local MISSED = 5                         -- words that may be missed, all but one

if ARGV[1] ~= '1' then return {'CLASH', 0, 0} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local every = math.max(EVERY_MS, math.floor(EVERY_MORE_MS * redis.call('ZCARD', KEYS[1])))
local ttl = math.max(tonumber(ARGV[3]), MISSED * every)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[2])
redis.pcall('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.pcall('PEXPIRE', KEYS[1], math.max(FORGET_MS, 2 * ttl))
return {'OK', now, redis.call('ZCARD', KEYS[1]), every}
