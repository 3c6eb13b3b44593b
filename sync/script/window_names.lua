-- window_names.lua -- names of keys that were counted in one window: those of one group of keys, where keys lie in
-- several stores (TW_CLOSED_BY_ONE). The election (close_election.lua) is in another key slot, and has an index of the
-- groups.
--
-- KEYS[1]  the names (a set), until the window is closed
-- KEYS[2]  add, read: the marker of the store (batch.lua). m: the store's identity; r: when it was made, in a store that
--          was empty
-- ARGV     1 version, 2 verb; then
--            add    3 when the keys expire, 4 for how long (ms) the names stay at least, 5 the
--                   marker's m, if this engine has recorded names of the window; else empty; 6.. names
--            read   3 cursor
--            drop   removes the set
-- Replies  {status, ms of TIME, read: r (0: there is no marker), cursor, names ...}
--          OK; YOU: to read, as from the election; CLASH another version, nothing was done
--
-- If an engine has recorded names (batch.lua) in this very store and finds no set, they are lost, and others' names with
-- them. An empty name says so to the closer.
-- Always true: the first write uses redis.call, so that Redis refuses all or nothing. Repeating a message changes only
-- times.
if ARGV[1] ~= '1' then return {'CLASH', 0, 0} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(n) return string.format('%.0f', n) end

if ARGV[2] == 'add' then
  local is_known = ARGV[5] ~= '' and redis.call('HMGET', KEYS[2], 'm')[1] == ARGV[5]
  if is_known and redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SADD', KEYS[1], '') end
  for i = 6, #ARGV do                    -- a member that begins with a zero byte has another form (batch.lua)
    if string.byte(ARGV[i]) == 0 then ARGV[i] = '\0' .. #ARGV[i] .. ':' .. ARGV[i] end
  end
  redis.call('SADD', KEYS[1], unpack(ARGV, 6))
  redis.pcall('PEXPIREAT', KEYS[1], text(math.max(tonumber(ARGV[3]), now + tonumber(ARGV[4]))))
  return {'OK', now, 0}
end
if ARGV[2] == 'drop' then
  local is_set = not redis.pcall('SSCAN', KEYS[1], '0', 'COUNT', '1').err -- a value of another client stays
  if is_set then redis.call('UNLINK', KEYS[1]) end
  return {'OK', now, 0}
end
local made = redis.pcall('HMGET', KEYS[2], 'r')[1]
local page = redis.call('SSCAN', KEYS[1], ARGV[3], 'COUNT', '100')
local out = {'YOU', now, tonumber(made or '') or 0, page[1]}
for i = 1, #page[2] do out[4 + i] = page[2][i] end
return out
