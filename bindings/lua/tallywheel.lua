--[[ tallywheel.lua -- counts and limits in LuaJIT, by its FFI; made for nginx with the Lua module, whose workers share one engine.

    init_by_lua_block {                                  -- in the master, before it forks
        local tallywheel = require "tallywheel"
        engine = tallywheel.open()                       -- { redis_url = "redis://..." } counts over several machines
        limits = engine:family("limits", { window = "day" })
    }
    init_worker_by_lua_block { engine:lead() }           -- one of the workers makes the turns
    access_by_lua_block {
        local is_admitted, verdict = limits:acquire(ngx.var.remote_addr, 1, 1000)
        if not is_admitted then return ngx.exit(429) end
    }

Options have the names of tw_options and tw_family_options; an enum is a word ("hard" is TW_LIMIT_HARD) or a number. What the
library refuses when something is opened is an error. A call that counts returns nil and the text.
Always true: no call here waits: limits by Redis are soft or hard, and a strict one is refused. No Lua function is called by
another thread. A handle is closed by the garbage collector, when the Lua VM of a worker, or of a master that was reloaded, ends.
The library is found by the loader, or by TALLYWHEEL_LIBRARY; the declarations lie beside this file, in a folder of
headers, or in TALLYWHEEL_CDEF. ]]
local ffi = require "ffi"

local function read_first(paths)
    for _, path in ipairs(paths) do
        local file = io.open(path)
        if file then
            local text = file:read "*a"
            file:close()
            return text
        end
    end
    error("tallywheel.cdef.h is in none of " .. table.concat(paths, " "))
end

local here = debug.getinfo(1, "S").source:match "^@(.*/)" or "./"
local declarations = read_first {
    os.getenv "TALLYWHEEL_CDEF" or here .. "tallywheel.cdef.h", here .. "tallywheel.cdef.h", here .. "../../include/tallywheel.cdef.h",
    "/usr/local/include/tallywheel.cdef.h", "/usr/include/tallywheel.cdef.h",
}
if not pcall(ffi.typeof, "tw_verdict") then ffi.cdef(declarations) end
local C = ffi.load(os.getenv "TALLYWHEEL_LIBRARY" or "libtallywheel.so.0")
local enums, fields = {}, {} -- of "limit_mode": { HARD = 1 ... }; of a struct: { name = true }
for tag, body in declarations:gmatch "\nenum tw_([%w_]+) { ([^}]*) }" do
    enums[tag] = body
end
for struct, body in declarations:gmatch "\nstruct (tw_[%w_]*options) { ([^}]*) }" do
    fields[struct] = {}
    for field in body:gmatch "([^;]*);" do
        local name = field:match "%(%*([%w_]+)%)" or field:match "([%w_]+)$"
        fields[struct][name] = field:find("(*", 1, true) and "function" or field:find "%*" and "text" or "number"
    end
end

-- The key is two arguments in place of a struct, which the JIT compiler cannot pass. On x86-64 and ARM64 both are the same
-- two registers, if the call has no more than six words.
local add = ffi.cast("tw_status (*)(tw_family *, const char *, size_t, int64_t, int64_t *)", C.tw_add)
local get = ffi.cast("tw_status (*)(tw_family *, const char *, size_t, int64_t *)", C.tw_get)
local acquire = ffi.cast("tw_status (*)(tw_family *, const char *, size_t, int64_t, int64_t, tw_verdict *)", C.tw_acquire)
local verdict_of, counts = ffi.typeof "tw_verdict", ffi.typeof "int64_t[1]"
local causes = { [0] = "limit", "share", "outage", "busy", "full", "buyer", "never" }
local M, Engine, Family = { C = C }, {}, {}
Engine.__index, Family.__index = Engine, Family

local function why()
    return ffi.string(C.tw_error_text())
end

-- "hard" of limit_mode is TW_LIMIT_HARD.
local function number_of(option, word)
    local body = enums[option] or enums[option:gsub("^on_", "")] or ""
    for name in body:gmatch "(TW_[%w_]+) =" do
        if name == word or name:sub(-#word - 1) == "_" .. word:upper() then return C[name] end
    end
    error(option .. ": '" .. word .. "' is none of its values: " .. body, 0)
end

-- The struct, and what must live until it was read.
local function options_of(struct, given)
    local options, kept = ffi.new(struct), {}
    C[struct .. "_init_sized"](options, ffi.sizeof(options))
    for name, value in pairs(given) do
        local kind = fields[struct][name]
        if not kind or name == "size" or name == "error_text" or name == "error_size" then
            error(struct .. " has no option '" .. name .. "'", 0)
        elseif kind == "function" and type(value) == "function" then
            error(name .. ": another thread would call it, and Lua functions are for one", 0)
        elseif kind == "number" and type(value) == "string" then
            value = number_of(name, value)
        end
        kept[#kept + 1] = value
        options[name] = value
    end
    return options, kept
end

--- Opens an engine that all processes share which fork from this one. Call engine:lead() in each of them.
function M.open(given)
    local options, kept = options_of("tw_options", given or {})
    if options.shared == 0 then options.shared = C.TW_SHARED_BY_FORK end
    if options.log_write == nil then options.log_write = C.tw_log_stderr end
    local out = ffi.new "tw_engine *[1]"
    if C.tw_open(options, out) ~= 0 or not kept then error("tw_open: " .. why(), 0) end
    return setmetatable({ handle = ffi.gc(out[0], function(handle) C.tw_close(handle, 1000) end) }, Engine)
end

function Engine:family(name, given)
    local options, kept = options_of("tw_family_options", given or {})
    options.name = name
    if options.limit_mode == C.TW_LIMIT_STRICT then error("limit_mode: a strict limit waits for Redis, and a worker may not", 0) end
    local out = ffi.new "tw_family *[1]"
    if C.tw_family_open(self.handle, options, out) ~= 0 or not kept then error("tw_family_open: " .. why(), 0) end
    return setmetatable({ handle = out[0], engine = self }, Family)
end

--- Whether this process leads.
function Engine:lead()
    local status = C.tw_lead(self.handle)
    if status < 0 then error("tw_lead: " .. why(), 0) end
    return status == 0
end

function Engine:stats()
    local stats = ffi.new "tw_stats"
    if C.tw_stats_read_sized(self.handle, stats, ffi.sizeof(stats)) ~= 0 then return nil, why() end
    return stats
end

--- A page for Prometheus.
function Engine:metrics()
    local pieces = {}
    local write = ffi.cast("bool (*)(void *, const char *, size_t)", function(_, text, size)
        pieces[#pieces + 1] = ffi.string(text, size)
        return true
    end)
    local status = C.tw_metrics_write(self.handle, 0, write, nil)
    write:free()
    if status ~= 0 then return nil, why() end
    return table.concat(pieces)
end
jit.off(Engine.metrics) -- a call that calls back cannot be compiled

--- The count after this add. nil, and the text, if it did not count, or counts in the overflow counter.
function Family:add(key, delta)
    local view = counts()
    local status = add(self.handle, key, #key, delta or 1, view)
    if status == 0 then return tonumber(view[0]) end
    return nil, status < 0 and why() or "the table is full: it counts in the overflow counter"
end

function Family:get(key)
    local view = counts()
    if get(self.handle, key, #key, view) ~= 0 then return nil, why() end
    return tonumber(view[0])
end

--- Whether it is admitted, and the verdict: remaining, used, retry_after_ms, window_start_ms ... as numbers, cause as a word.
-- An error is nil, the verdict, whose `allowed` is what the policy recommends, and the text.
function Family:acquire(key, n, limit)
    local seen = verdict_of()
    local status = acquire(self.handle, key, #key, n, limit, seen)
    local verdict = {
        limit = tonumber(seen.limit), used = tonumber(seen.used), remaining = tonumber(seen.remaining),
        retry_after_ms = tonumber(seen.retry_after_ms), reset_after_ms = tonumber(seen.reset_after_ms),
        window_start_ms = tonumber(seen.window_start_ms), allowed = seen.allowed == 1, pending = status == C.TW_PENDING,
        cause = seen.allowed == 0 and causes[seen.cause] or nil,
    }
    if status < 0 then return nil, verdict, why() end
    return status == 0, verdict
end

--- Gives units back that were admitted in the window of that verdict.
function Family:refund(key, n, verdict)
    if C.tw_refund(self.handle, ffi.new("tw_key", key, #key), n, verdict.window_start_ms) ~= 0 then return nil, why() end
    return true
end

return M
