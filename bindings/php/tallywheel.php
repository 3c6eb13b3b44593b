<?php
/* tallywheel.php -- counts and limits that all workers of PHP-FPM share, by PHP's FFI. docs/LANGUAGES.md says how to install it.
 *
 *     $verdict = Tallywheel\acquire('logins', $_SERVER['REMOTE_ADDR']);
 *     if (!$verdict->allowed) http_response_code(429);
 *
 * Families and limits are lines of a file, which the master reads: tallywheel_php.c.
 * Always true: a call without an answer is an Error with the text of the library. Only a strict limit waits, for Redis. */
namespace Tallywheel;

use FFI;

final class Error extends \RuntimeException
{
}

final class Verdict
{
    private const CAUSES = ['limit', 'share', 'outage', 'busy', 'full', 'buyer', 'never'];
    public readonly int $limit, $used, $remaining, $retry_after_ms, $reset_after_ms, $window_start_ms;
    public readonly bool $allowed;   /* within the limit, or what the policy of an outage recommends */
    public readonly bool $pending;   /* the units are on their way: ask again */
    public readonly ?string $cause;  /* why it is not allowed: limit, share, outage, busy, full, buyer, never */

    /** @internal */
    public function __construct(FFI\CData $seen)
    {
        foreach (['limit', 'used', 'remaining', 'retry_after_ms', 'reset_after_ms', 'window_start_ms'] as $name) {
            $this->$name = $seen->$name;
        }
        $this->allowed = $seen->allowed === 1;
        $this->pending = $seen->pending === 1;
        $this->cause = $this->allowed ? null : self::CAUSES[$seen->cause] ?? null;
    }
}

/** Takes n units of the key's limit. */
function acquire(string $family, string $key, int $n = 1): Verdict
{
    static $verdict;
    $verdict ??= library()->new('tallywheel_verdict');
    must(library()->tallywheel_acquire($family, $key, strlen($key), $n, FFI::addr($verdict)));
    return new Verdict($verdict);
}

/** Gives units back that were allowed in the window of that verdict. */
function refund(string $family, string $key, int $n, Verdict $verdict): void
{
    must(library()->tallywheel_refund($family, $key, strlen($key), $n, $verdict->window_start_ms));
}

/** Counts, whatever the limit is. The count after this add; null if the table is full, and it counts in the overflow counter. */
function add(string $family, string $key, int $delta = 1): ?int
{
    static $count;
    $count ??= library()->new('int64_t');
    $status = must(library()->tallywheel_add($family, $key, strlen($key), $delta, FFI::addr($count)));
    return $status === 0 ? $count->cdata : null;
}

function get(string $family, string $key): int
{
    static $count;
    $count ??= library()->new('int64_t');
    must(library()->tallywheel_get($family, $key, strlen($key), FFI::addr($count)));
    return $count->cdata;
}

/** A page for Prometheus. */
function metrics(): string
{
    $page = library()->new('char[' . ($size = 1 << 20) . ']');
    $used = library()->new('size_t');
    must(library()->tallywheel_metrics($page, $size, FFI::addr($used)));
    return FFI::string($page, $used->cdata);
}

/** @internal */
function library(): FFI
{
    static $library;
    return $library ??= FFI::scope('TALLYWHEEL');
}

/** @internal */
function must(int $status): int
{
    if ($status < 0) throw new Error(library()->tallywheel_why(), $status);
    return $status;
}
