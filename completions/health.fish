# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_health_global_optspecs
    string join \n h/help V/version
end

function __fish_health_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_health_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_health_using_subcommand
    set -l cmd (__fish_health_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c health -n "__fish_health_needs_command" -s h -l help -d 'Print help'
complete -c health -n "__fish_health_needs_command" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_needs_command" -f -a "link" -d 'Tell whether an interface is up and something is at its other end'
complete -c health -n "__fish_health_needs_command" -f -a "load" -d 'Tell whether there is more to run than this host can'
complete -c health -n "__fish_health_needs_command" -f -a "disk" -d 'Tell whether a file system has room and is mounted to be written to; one that hangs is unknown in time'
complete -c health -n "__fish_health_needs_command" -f -a "memory" -d 'Tell whether there is memory to be had without swapping'
complete -c health -n "__fish_health_needs_command" -f -a "tcp" -d 'Tell whether something accepts connections; a refusal is down at once, silence after --retries'
complete -c health -n "__fish_health_needs_command" -f -a "http" -d 'Tell whether a server answers as it should; redirects are answers, and not followed'
complete -c health -n "__fish_health_needs_command" -f -a "ping" -d 'Tell whether a host answers echoes; without privilege where net.ipv4.ping_group_range allows it'
complete -c health -n "__fish_health_needs_command" -f -a "dns" -d 'Tell whether a server knows a name: over UDP, and over TCP where the answer does not fit'
complete -c health -n "__fish_health_needs_command" -f -a "process" -d 'Tell whether a program runs; a number in a pid file counts only while it is that program\'s'
complete -c health -n "__fish_health_needs_command" -f -a "exec" -d 'Tell whether a command is content: run without a shell, killed when late, and whatever it left behind with it'
complete -c health -n "__fish_health_needs_command" -f -a "damp" -d 'Pass verdicts on, changed only after they were said often enough; several subjects at once'
complete -c health -n "__fish_health_needs_command" -f -a "score" -d 'Conclude from verdicts what is left of this node\'s priority; 0 gives the address up'
complete -c health -n "__fish_health_using_subcommand link" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand link" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand link" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand link" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand link" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand link" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand link" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand link" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand link" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand link" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand link" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand link" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand link" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand link" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand link" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand link" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand link" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand link" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand load" -l limit -d 'The highest load for each CPU that is online' -r
complete -c health -n "__fish_health_using_subcommand load" -l over -d 'The average over so many minutes that the limit is for' -r
complete -c health -n "__fish_health_using_subcommand load" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand load" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand load" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand load" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand load" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand load" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand load" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand load" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand load" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand load" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand load" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand load" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand load" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand load" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand load" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand load" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand load" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand load" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand disk" -l limit -d 'The highest share of blocks and of inodes in use, in per cent' -r
complete -c health -n "__fish_health_using_subcommand disk" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand disk" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand disk" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand disk" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand disk" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand disk" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand disk" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand disk" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand disk" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand disk" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand disk" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand disk" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand disk" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand disk" -l read-only -d 'A file system that is mounted read-only is well too'
complete -c health -n "__fish_health_using_subcommand disk" -l look -d 'Look in this process, and print the figures for the one that asked'
complete -c health -n "__fish_health_using_subcommand disk" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand disk" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand disk" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand disk" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand disk" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand memory" -l limit -d 'What must be left: bytes, with K, M, G or T, or a share of all memory with %' -r
complete -c health -n "__fish_health_using_subcommand memory" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand memory" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand memory" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand memory" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand memory" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand memory" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand memory" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand memory" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand memory" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand memory" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand memory" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand memory" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand memory" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand memory" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand memory" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand memory" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand memory" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand memory" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand tcp" -l dev -d 'Leave by this interface' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l source -d 'Leave with this address' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand tcp" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand tcp" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand tcp" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand tcp" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand tcp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand tcp" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand http" -l expect-status -d 'The statuses that are good: numbers and ranges' -r
complete -c health -n "__fish_health_using_subcommand http" -l match -d 'The first 64 KiB of the answer must have TEXT in it' -r
complete -c health -n "__fish_health_using_subcommand http" -l connect -d 'Connect to this server, whatever the URL\'s name means; the name stays in the request and in TLS' -r
complete -c health -n "__fish_health_using_subcommand http" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s]' -r -F
complete -c health -n "__fish_health_using_subcommand http" -l dev -d 'Leave by this interface' -r
complete -c health -n "__fish_health_using_subcommand http" -l source -d 'Leave with this address' -r
complete -c health -n "__fish_health_using_subcommand http" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand http" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand http" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand http" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand http" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand http" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand http" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand http" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand http" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand http" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand http" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand http" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand http" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand http" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand http" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand http" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand http" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand http" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand ping" -l count -d 'Echoes in a probe; all within its response time-out' -r
complete -c health -n "__fish_health_using_subcommand ping" -l echo-interval -d 'From echo to echo' -r
complete -c health -n "__fish_health_using_subcommand ping" -l max-loss -d 'The highest loss of a good probe, in per cent' -r
complete -c health -n "__fish_health_using_subcommand ping" -l dev -d 'Leave by this interface' -r
complete -c health -n "__fish_health_using_subcommand ping" -l source -d 'Leave with this address' -r
complete -c health -n "__fish_health_using_subcommand ping" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand ping" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand ping" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand ping" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand ping" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand ping" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand ping" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand ping" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand ping" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand ping" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand ping" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand ping" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand ping" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand ping" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand ping" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand ping" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand ping" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand ping" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand dns" -l server -d 'Whom to ask [default: the first nameserver of /etc/resolv.conf]' -r
complete -c health -n "__fish_health_using_subcommand dns" -l type -d 'The type of the records' -r
complete -c health -n "__fish_health_using_subcommand dns" -l expect -d 'Addresses that must be among the answers' -r
complete -c health -n "__fish_health_using_subcommand dns" -l dev -d 'Leave by this interface' -r
complete -c health -n "__fish_health_using_subcommand dns" -l source -d 'Leave with this address' -r
complete -c health -n "__fish_health_using_subcommand dns" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand dns" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand dns" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand dns" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand dns" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand dns" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand dns" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand dns" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand dns" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand dns" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand dns" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand dns" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand dns" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand dns" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand dns" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand dns" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand dns" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand dns" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand process" -l pidfile -d 'The file that its number stands in' -r -F
complete -c health -n "__fish_health_using_subcommand process" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand process" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand process" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand process" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand process" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand process" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand process" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand process" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand process" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand process" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand process" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand process" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand process" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand process" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand process" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand process" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand process" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand process" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand exec" -l interval -d 'From the start of a probe to the start of the next; one that takes longer delays it' -r
complete -c health -n "__fish_health_using_subcommand exec" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c health -n "__fish_health_using_subcommand exec" -l retries -d 'Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]' -r
complete -c health -n "__fish_health_using_subcommand exec" -l k-of-n -d 'Instead, K failed probes of the last N make down' -r
complete -c health -n "__fish_health_using_subcommand exec" -l success-retries -d 'Good probes in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand exec" -l fast-interval -d 'The interval while the last probe speaks against the verdict [default: --interval]' -r
complete -c health -n "__fish_health_using_subcommand exec" -l down-time -d 'No probe for so long after going down, then the interval again' -r
complete -c health -n "__fish_health_using_subcommand exec" -l valid-for -d 'How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]' -r
complete -c health -n "__fish_health_using_subcommand exec" -l name -d 'Call it NAME in records: what health score counts it by [default: as it is given]' -r
complete -c health -n "__fish_health_using_subcommand exec" -l exit -d 'End with the statuses of another program\'s dialect; the record stays the same' -r -f -a "nagios\t'0 up, 2 down, 3 unknown or failed (Monitoring Plugins\' guidelines, §2.3)'
ocf\t'0 up, 7 down, 2 usage, 4 not permitted, 5 missing here, else 1 (Resource Agent API 1.1)'"
complete -c health -n "__fish_health_using_subcommand exec" -l for -d 'End after D with the status of the last verdict' -r
complete -c health -n "__fish_health_using_subcommand exec" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand exec" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand exec" -l nagios -d 'CMD ends as a Nagios plugin does: 0 and 1 (warning) are up, 2 is down, 3 unknown [default: 0 is up]'
complete -c health -n "__fish_health_using_subcommand exec" -l follow -d 'Go on probing, with a record each round, until the end'
complete -c health -n "__fish_health_using_subcommand exec" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand exec" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand exec" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand damp" -l rise -d 'Verdicts in a row that make up' -r
complete -c health -n "__fish_health_using_subcommand damp" -l fall -d 'Verdicts in a row that make down' -r
complete -c health -n "__fish_health_using_subcommand damp" -l hold -d 'What went down stays down for D' -r
complete -c health -n "__fish_health_using_subcommand damp" -l state -d 'Remember from run to run' -r -F
complete -c health -n "__fish_health_using_subcommand damp" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand damp" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand damp" -l penalty -d 'Keep down what flaps, until its penalty has decayed: 1000 a flap, halved each 15m, down from 2000 to 750'
complete -c health -n "__fish_health_using_subcommand damp" -l exit-zero -d 'End with status 0 whatever was said'
complete -c health -n "__fish_health_using_subcommand damp" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand damp" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand damp" -s h -l help -d 'Print help'
complete -c health -n "__fish_health_using_subcommand damp" -s V -l version -d 'Print version'
complete -c health -n "__fish_health_using_subcommand score" -l policy -d 'How services that are down lower the priority' -r -f -a "none\t'Not at all'
all\t'One that is down lowers it to 0'
one\t'Only all of them down lower it to 0'
progressive\t'Each takes its part: base x up / total, rounded down, but at least 1 while one is up'"
complete -c health -n "__fish_health_using_subcommand score" -l base -d 'The priority when all is well, 1 to 255: one number, or one for each VIP' -r
complete -c health -n "__fish_health_using_subcommand score" -l unknown -d 'What a service counts as that nobody knows about' -r -f -a "hold\t'Its last verdict until that expires, then down'
down\t'Down at once'
up\t'Up'"
complete -c health -n "__fish_health_using_subcommand score" -l expect -d 'Services that count also before anybody has said anything of them' -r
complete -c health -n "__fish_health_using_subcommand score" -l settle -d 'As a stream, wait so long for a verdict on each that is expected, before the first conclusion' -r
complete -c health -n "__fish_health_using_subcommand score" -l standby -d 'While FILE is there the priority is 0; its text is the reason' -r -F
complete -c health -n "__fish_health_using_subcommand score" -l max-skew -d 'Once, take a record without arrival by its own time, at most so far ahead of ours' -r
complete -c health -n "__fish_health_using_subcommand score" -l state -d 'Remember from run to run' -r -F
complete -c health -n "__fish_health_using_subcommand score" -l renew -d 'Repeat the conclusion at least every D, for as long as what it rests on holds' -r
complete -c health -n "__fish_health_using_subcommand score" -l for -d 'End after D with the status of the last conclusion' -r
complete -c health -n "__fish_health_using_subcommand score" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c health -n "__fish_health_using_subcommand score" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c health -n "__fish_health_using_subcommand score" -l brief -d 'Leave the services out: short enough for a beat'
complete -c health -n "__fish_health_using_subcommand score" -l follow -d 'Conclude after each step of the input, and print what changed'
complete -c health -n "__fish_health_using_subcommand score" -l pass -d 'Copy each line of input first'
complete -c health -n "__fish_health_using_subcommand score" -l exit-zero -d 'End with status 0 whatever was concluded'
complete -c health -n "__fish_health_using_subcommand score" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c health -n "__fish_health_using_subcommand score" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c health -n "__fish_health_using_subcommand score" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c health -n "__fish_health_using_subcommand score" -s V -l version -d 'Print version'
