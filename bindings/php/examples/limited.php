<?php
/* limited.php -- one limit for all workers: 1,000 requests of a client in an hour. */
if ($_SERVER['REQUEST_URI'] === '/metrics') {
    header('Content-Type: text/plain; version=0.0.4; charset=utf-8');
    exit(Tallywheel\metrics());
}
$verdict = Tallywheel\acquire('requests', $_SERVER['REMOTE_ADDR']);
header("RateLimit-Remaining: $verdict->remaining");
if (!$verdict->allowed) {
    http_response_code(429);
    header('Retry-After: ' . ceil($verdict->retry_after_ms / 1000));
}
echo 'worker ', getmypid(), ', view ', Tallywheel\add('views', 'page'), "\n";
