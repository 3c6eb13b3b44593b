-- registry.lua -- the registry of live engines. Each engine sends a heartbeat every second, less often if there are
-- many, and learns how many engines live.
--
-- KEYS[1]  the registry (a sorted set): instances by the time (ms) at which they count as dead; it expires a minute
--          after the last heartbeat, or later
-- ARGV     1 version, 2 instance, 3 how long (ms) this heartbeat is valid at least; 0: the engine leaves
-- Replies  {OK, ms of TIME, how many live, the interval (ms) of the heartbeat}; CLASH another version, nothing was done
--
-- Always true: repeating a heartbeat changes only times. What would live for more than two lifetimes was written while
-- Redis's clock was ahead: it goes, and comes again with the next heartbeat of its engine. An engine that leaves removes
-- nobody else. The first write uses redis.call, so that Redis refuses all or nothing.
local FORGET_MS = 60000
local EVERY_MS, EVERY_MORE_MS = 1000, 0.5 -- this long, or this many ms for each engine
local LEAST_MS = 5000                    -- the shortest lifetime that an engine asks for
local MISSED = 5                         -- intervals without a heartbeat after which an engine counts as dead

if ARGV[1] ~= '1' then return {'CLASH', 0, 0} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local every = math.max(EVERY_MS, math.floor(EVERY_MORE_MS * redis.call('ZCARD', KEYS[1])))
local life = math.max(tonumber(ARGV[3]), LEAST_MS, MISSED * every)
local leaves = ARGV[3] == '0'
redis.call('ZADD', KEYS[1], string.format('%.0f', leaves and now or now + life), ARGV[2])
redis.pcall('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.pcall('ZREMRANGEBYSCORE', KEYS[1], string.format('%.0f', now + 2 * life), '+inf')
redis.pcall('PEXPIRE', KEYS[1], math.max(FORGET_MS, 2 * life))
return {'OK', now, math.max(1, redis.call('ZCARD', KEYS[1])), every}
