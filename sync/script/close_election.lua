-- close_election.lua -- one engine closes each window of a family for all (TW_CLOSED_BY_ONE). The script keeps who
-- takes part, what each engine has drained, who is elected, and the names of the keys that were counted.
--
-- KEYS[1]  the family's engines (a hash). i:INSTANCE, "until number floor ends": when (ms) the engine counts as dead,
--          the number of its last message, and the windows that it holds up: all that end after `floor`, and those in
--          the list. h: when the last message of any engine came. f: nobody is elected before this time. p: for how
--          long (ms) no engine was heard at all; lifetimes do not run in that time. u:0 .. u:6, "end i:INSTANCE": an
--          engine that held a window up when last seen. k: how far this hash is tidied. l: the end of a
--          window whose names were lost, so that all record them again. Version 2: x, y:
--          engines died without a word, the last of them at y, and of windows that end after x they may have recorded
--          names in groups that no index has
-- KEYS[2]  the window (a string). "c INSTANCE until": claimed; "p 0": no longer claimed; "d INSTANCE": closed; "t
--          INSTANCE": reported before its time. Marks follow: " a", it was reported before; " +", an engine that holds
--          it up came after it was claimed or closed; " #N", the round: how often it was closed (version 2)
-- KEYS[3]  the names of its keys (a set), until it is closed. Batches record them (batch.lua), and engines from before
--          this rule list them when the window ends. In version 2 the names lie elsewhere (window_names.lua), and this is
--          the index: the groups of keys that have names. An empty member: the engine that claimed the window before may
--          have names in groups that the index lacks, so all groups have to be read
-- KEYS[4]  the windows that have counts and are not closed (a sorted set): the start, by when (ms) an engine that has
--          not counted there may look after it. In version 1 the batch that records the first name makes the entry
-- ARGV     1 version: 1, or 2 where keys lie in several stores; 2 verb, 3 instance, 4 number, rising with each message,
--          5 "1": it has been here before, 6 the lifetime (ms) of a heartbeat and of a claim, 7 floor, 8 ends: ",end,end,"; of a window: 9 its end, 10 when
--          its keys expire, 11.. by verb
--            word   a heartbeat; it needs no window. 11 until when entries of KEYS[4] are removed; 12.. in version 2
--                   windows in which this engine will count: for each START, when others may look after it, when
--                   their keys expire
--            leave  the engine holds nothing up any more, and leaves
--            ask    claims the window, and renews the claim. 11 "1": since an answer to this engine, nothing has removed
--                   its names (version 2: they are listed), 12 "1": it is through: an answer said that it no longer holds
--                   the window up; 13 the window's start, 14 "1": it has recorded names of this window
--            list   11 to 14 as with ask: the engine holds the window up no longer, and does not claim it. Version 2:
--                   15.. groups of keys, perhaps none: then names will be added
--            last   is any other engine there?
--            read   11 cursor, 12 "1": only for the engine that has claimed it
--            pass   gives the claim up: its hook refuses the window, another engine's hook may take it
--            part   the window was reported before its time; 11 its start; 12 when others may look after it
--            done   the window was certainly closed; 11 its start
-- Replies  {status, ms of TIME, how many others live (roughly, if they are many); read: the next cursor, names ...;
--          word: the interval (ms) of the heartbeat, START ... of the first windows in KEYS[4]; version 2, list, ask, last
--          and done: the round; ask, last: 1 if all groups have to be read, 0 if those of the index suffice; ask:
--          2 if counts were announced after the window was closed: names may be lacking}
--          OK; WAIT: others hold it up; LIST: record the names again first (version 2: send them); OTHER: another engine
--          has claimed it; YOU: this engine has; AGAIN: this engine has, and the window was reported before; DONE: it is
--          closed already; LATE: it is closed, without counts that came too late
--          NEW  the engine was here before and is not known any more: its list counts from its next message on. Nothing
--               else was done
--          OLD  a message from before its last one; CLASH another version. Nothing was done
--
-- Many messages in one call (one store): ARGV is "many", and for each message how many arguments it has, and these; each
-- has four of KEYS. The reply has their replies in the same order. An error of one is its reply, and changes nothing for the
-- others. LATER: the replies before it are so long that nothing was done
--
-- If an engine asks or lists, is not through, and the window is claimed or closed at that moment, that closing lacks
-- its counts. Then the window is closed once more, by this engine or by the next one that asks. Names that were recorded
-- before a closing are gone with it, so an engine that comes after one records its names again. An engine that recorded
-- them before, and asks after, may not know of the closing. Without a set and without an entry in KEYS[4], nothing is lost.
-- Always true: the first write of a message uses redis.call, so that Redis refuses all or nothing of it. Repeating a message changes only
-- times. Time without any message ends no engine's life: Redis was unreachable, not the engines. The cost of a message does
-- not grow with the number of engines, with one exception: if the last known holder of a window no longer holds it up,
-- a request for that window looks at all engines.
local GAP_MS = 2500                      -- each engine sends one heartbeat a second; many engines send as many in sum
local EVERY_MS, EVERY_MORE_MS = 1000, 0.7 -- the interval: this long, or this many ms for each engine
local FEW = 64                           -- up to this many engines, the others are counted exactly
local DEATH_MS = 86400000                -- for a day after a death the names of all groups are read
local FRESH_MS = 1500                    -- first use: live engines have come by then
local REPLIES_MAX = 1000                 -- elements of the replies to many messages, before one more is looked at

local function take(KEYS, ARGV)
  local by_tag = ARGV[1] == '2'
  if ARGV[1] ~= '1' and not by_tag then return {'CLASH', 0, 0} end
  local verb, me, number, ttl = ARGV[2], 'i:' .. ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local function text(n) return string.format('%.0f', n) end

  local function member_of(value)
    local till, number_sent, floor, ends = string.match(value or '', '^(%d+) (%d+) (%-?%d+) (%S+)$')
    return till and #till <= 14 and #number_sent <= 14 and {tonumber(till), number_sent, floor, ends} or nil
  end
  local values = redis.call('HMGET', KEYS[1], me, 'h', 'f', 'p', 'k', 'l')
  local function count_of(value)           -- nil: this script never wrote it
    return value and #value <= 14 and string.find(value, '^%d+$') and tonumber(value) or nil
  end
  local last_call, from, paused = count_of(values[2]), count_of(values[3]) or 0, count_of(values[4]) or 0
  if paused >= now then paused = 0 end
  if from > now + 8 * ttl then from = now end
  local mine = member_of(values[1])
  if mine and tonumber(mine[2]) >= number then return {'OLD', now, 0} end

  if verb == 'leave' then
    redis.call('HDEL', KEYS[1], me)
    return {'OK', now, 0}
  end

  local size = redis.call('HLEN', KEYS[1])
  local every = math.max(EVERY_MS, math.floor(EVERY_MORE_MS * size))
  if every > EVERY_MS then ttl = math.max(ttl, 4 * every) end
  if last_call and now - last_call > GAP_MS then paused = paused + now - last_call end
  local clock = now - paused               -- the time by which lifetimes run
  local forgotten = not mine and ARGV[5] == '1'
  if forgotten then from = math.max(from, now + ttl)
  elseif not last_call then from = now + FRESH_MS end
  redis.call('HSET', KEYS[1], 'h', text(now), 'f', text(from), 'p', text(paused), me,
    text(clock + ttl) .. ' ' .. ARGV[4] .. ' ' .. (forgotten and '-1 ,' or ARGV[7] .. ' ' .. ARGV[8]))
  redis.pcall('PEXPIRE', KEYS[1], text(4 * ttl))

  -- One of the others, or nil if it is not alive.
  local function member_alive(value)
    local member = member_of(value)
    return member and member[1] > clock and member or nil
  end
  local function note_death(floor)         -- of an engine that has not said that it leaves
    local x = tonumber(redis.call('HMGET', KEYS[1], 'x')[1] or '')
    if by_tag then redis.call('HSET', KEYS[1], 'x', x and x < floor and text(x) or text(floor), 'y', text(now)) end
  end
  if not last_call and redis.pcall('EXISTS', KEYS[4]) == 1 then note_death(-1) end -- all have died
  local members = setmetatable({}, {__index = function(_, field) return member_alive(redis.call('HMGET', KEYS[1], field)[1]) end})
  local function look_at(fields, see)      -- true once `see` has returned true
    for i = 1, #fields, 2 do
      if string.sub(fields[i], 1, 2) == 'i:' and fields[i] ~= me and see(fields[i], fields[i + 1]) then return true end
    end
    return false
  end
  -- some of them, once a second: dead ones are removed
  if not last_call or math.floor(now / 1000) ~= math.floor(last_call / 1000) then
    local page = redis.pcall('HSCAN', KEYS[1], count_of(values[5]) and values[5] or '0', 'COUNT', '64')
    if not page.err then
      look_at(page[2], function(field, value)
        if member_alive(value) then return end
        local dead = member_of(value)
        if dead then note_death(tonumber(dead[3])) end
        redis.pcall('HDEL', KEYS[1], field)
      end)
      redis.call('HSET', KEYS[1], 'k', page[1])
    end
  end
  if forgotten then return {'NEW', now, size} end

  -- The window has counts: engines that have none there learn of it, should those die that have.
  local function list_window(start, due, expires)
    redis.pcall('ZADD', KEYS[4], text(math.max(tonumber(due), now)), start)
    local life, most = redis.pcall('PTTL', KEYS[4]), math.max(tonumber(expires) - now, 4 * ttl)
    if type(life) == 'number' and life < most then redis.pcall('PEXPIRE', KEYS[4], text(most)) end
  end

  if verb == 'word' then
    for i = 12, #ARGV, 3 do list_window(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
    redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', ARGV[11])
    local out, listed = {'OK', now, size, every}, redis.pcall('ZRANGEBYSCORE', KEYS[4], '-inf', 'inf', 'LIMIT', '0', '64')
    for i = 1, #listed do out[4 + i] = listed[i] end
    return out
  end

  local others = size
  if size <= FEW then
    others = 0
    look_at(redis.call('HGETALL', KEYS[1]), function(_, value) others = others + (member_alive(value) and 1 or 0) end)
  end

  local kind, who, till, marks, round = string.match(redis.call('GET', KEYS[2]) or '',
    '^(%a) (%x+) ?(%d*) ?([a+]*) ?#?(%d*)$')
  round = tonumber(round or '') or 0
  local is_mine = kind == 'c' and who == ARGV[3]
  local again = kind == 'd' or kind == 't' or kind and string.find(marks, 'a', 1, true)
  local late = kind and string.find(marks, '+', 1, true)
  local function put(state)
    if round > 0 then state = state .. ' #' .. text(round) end
    redis.call('SET', KEYS[2], state, 'PX', text(math.max(tonumber(ARGV[10]) - now, 4 * ttl)))
  end
  local function mark(is_repeat, more)
    return (is_repeat or more) and ' ' .. (is_repeat and 'a' or '') .. (more and '+' or '') or ''
  end
  local function answer(status, all) return {status, now, others, by_tag and round or nil, all} end
  local function add_names(...)
    redis.call('SADD', KEYS[3], ...)
    redis.pcall('PEXPIREAT', KEYS[3], text(math.max(tonumber(ARGV[10]), now + 4 * ttl)))
  end
  -- An engine that is alone claims a window without listing its groups. Here its claim ends, and names of others wait.
  local function note_unlisted()
    if by_tag then add_names('') end
  end
  local function died()                    -- 1: an engine that has counted in the window may have died
    local seen = redis.call('HMGET', KEYS[1], 'x', 'y')
    local x, y = tonumber(seen[1] or ''), count_of(seen[2])
    return by_tag and x and y and tonumber(ARGV[9]) > x and now - y < DEATH_MS and 1 or 0
  end
  local function drained_by_others()
    local last, listed = tonumber(ARGV[9]), ',' .. ARGV[9] .. ','
    local function holds(_, value)
      local member = member_alive(value)
      return member and (tonumber(member[3]) < last or string.find(member[4], listed, 1, true) ~= nil)
    end
    local slot = 'u:' .. math.floor(last / 1000) % 7
    local seen = string.match(redis.call('HMGET', KEYS[1], slot)[1] or '', '^' .. ARGV[9] .. ' (%S+)$')
    if seen and seen ~= me and holds(seen, redis.call('HMGET', KEYS[1], seen)[1]) then return false end
    local function note(field, value)
      local dead = not member_alive(value) and member_of(value)
      if dead then note_death(tonumber(dead[3])) end
      if not holds(field, value) then return false end
      redis.call('HSET', KEYS[1], slot, ARGV[9] .. ' ' .. field)
      return true
    end
    local cursor = '0'
    repeat
      local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', '256')
      if look_at(page[2], note) then return false end
      cursor = page[1]
    until cursor == '0'
    return true
  end

  -- A claim lasts longer than its time while its engine lives: Redis may have been away when the claim had to be renewed
  -- or the window closed. It does not last for ever: that engine may have closed the window with its local values
  -- instead.
  local function is_anothers()
    if kind ~= 'c' or is_mine then return false end
    local ends = tonumber(till)
    return ends > now or members['i:' .. who] ~= nil and ends + 4 * ttl > now
  end

  if verb == 'done' then
    if is_anothers() then
      put('c ' .. who .. ' ' .. till .. mark(true, late)) -- the claim's engine reports the window again
      return answer('DONE')
    end
    if kind ~= 'd' and by_tag and not late then round = round + 1 end
    if kind ~= 'd' then put('d ' .. ARGV[3] .. mark(false, late)) end
    if late then
      note_unlisted()
      return answer('LATE')
    end
    local is_set = not redis.pcall('SSCAN', KEYS[3], '0', 'COUNT', '1').err -- a value of another client stays
    if is_set then redis.pcall('UNLINK', KEYS[3]) end
    redis.pcall('ZREM', KEYS[4], ARGV[11])
    return answer('DONE')
  end
  if verb == 'part' then
    if kind ~= 'd' and kind ~= 'c' then
      put('t ' .. ARGV[3])
      list_window(ARGV[11], ARGV[12], ARGV[10])
    end
    return {'OK', now, others}
  end
  local ends = verb == 'ask' or verb == 'list' -- the engine needs the window no longer
  local names_are_gone = again and kind ~= 't' and ARGV[11] ~= '1'
  if ends and ARGV[12] ~= '1' and not late and (kind == 'd' or kind == 'c' and not is_mine) then
    late, names_are_gone = true, names_are_gone or kind == 'd'
    put(kind .. ' ' .. who .. (till ~= '' and ' ' .. till or '') .. mark(again and kind == 'c', true))
  end
  local function is_in_list(start)         -- a closing takes it out, and names or a word of counts put it in
    local added = redis.pcall('ZADD', KEYS[4], 'NX', text(now), start)
    if added == 1 then redis.pcall('ZREM', KEYS[4], start) end
    return added == 0
  end
  -- By tag, counts come with no word to this store. An engine that has announced them after the window was closed is
  -- enough: it may be dead, and then nobody says more.
  local announced = by_tag and verb == 'ask' and kind == 'd' and not late and is_in_list(ARGV[13])
  if announced then
    late = true
    put('d ' .. who .. mark(false, true))
  end
  if kind == 'd' and not late then return {'DONE', now, others} end
  if ends and not by_tag and ARGV[14] == '1' then
    local is_there = redis.call('EXISTS', KEYS[3]) == 1
    if again and kind ~= 't' and not is_there and not is_in_list(ARGV[13]) then names_are_gone = true end
    local are_lost = not names_are_gone and not is_there
    if are_lost then                       -- an empty name says so to the closer, for perhaps a dead engine had recorded some
      add_names('')
      redis.call('HSET', KEYS[1], 'l', ARGV[9])
    end
    local is_asked = names_are_gone or ARGV[11] ~= '1' and (are_lost or values[6] == ARGV[9])
    if is_asked then return {'LIST', now, others} end
  end
  if verb == 'list' then
    if ARGV[15] then add_names(unpack(ARGV, 15)) end
    return answer(kind == 'd' and 'LATE' or 'OK')
  end
  if verb == 'last' then
    if others ~= 0 and kind ~= 'd' then return {'OTHER', now, others} end
    return answer(again and 'AGAIN' or 'YOU', died())
  end
  if verb == 'read' then
    if ARGV[12] == '1' and not is_mine then return {'OTHER', now, others} end
    if is_mine then put('c ' .. ARGV[3] .. ' ' .. text(now + ttl) .. mark(again, late)) end
    local page = redis.call('SSCAN', KEYS[3], ARGV[11], 'COUNT', '100')
    local out = {'YOU', now, others, page[1]}
    for i = 1, #page[2] do out[4 + i] = page[2][i] end
    return out
  end
  if verb == 'pass' then
    if is_mine then
      put('p 0' .. mark(again))
      note_unlisted()
    end
    return {'OK', now, others}
  end
  -- ask
  if by_tag and ARGV[11] ~= '1' and (others ~= 0 or redis.call('EXISTS', KEYS[3]) == 1) then
    return {'LIST', now, others}
  end
  if is_anothers() then return {'OTHER', now, others} end
  if not is_mine and (now < from or not drained_by_others()) then return {'WAIT', now, others} end
  put('c ' .. ARGV[3] .. ' ' .. text(now + ttl) .. mark(again, is_mine and late))
  if kind == 'c' and not is_mine then note_unlisted() end
  return answer(again and 'AGAIN' or 'YOU', announced and 2 or died())
end

if ARGV[1] ~= 'many' then return take(KEYS, ARGV) end
local replies, at, elements = {}, 2, 0
for i = 1, #KEYS / 4 do
  local last = at + tonumber(ARGV[at])
  if elements > REPLIES_MAX then
    replies[i] = {'LATER', 0, 0}
  else
    local done, reply = pcall(take, {unpack(KEYS, 4 * i - 3, 4 * i)}, {unpack(ARGV, at + 1, last)})
    replies[i] = done and reply or {err = type(reply) == 'table' and reply.err or tostring(reply)}
    elements = elements + #replies[i]
  end
  at = last + 1
end
return replies
