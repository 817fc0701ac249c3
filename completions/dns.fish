# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_dns_global_optspecs
    string join \n h/help V/version
end

function __fish_dns_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_dns_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_dns_using_subcommand
    set -l cmd (__fish_dns_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c dns -n "__fish_dns_needs_command" -s h -l help -d 'Print help'
complete -c dns -n "__fish_dns_needs_command" -s V -l version -d 'Print version'
complete -c dns -n "__fish_dns_needs_command" -f -a "check" -d 'Ask each authority and resolver for a name: is its answer live, cached or stale, and do they agree?'
complete -c dns -n "__fish_dns_needs_command" -f -a "trace" -d 'Time a fail-over while it happens: the last old and the first new answer at each vantage point'
complete -c dns -n "__fish_dns_needs_command" -f -a "budget" -d 'Add up how long a fail-over by DNS takes: detection, servers, resolvers, system, program'
complete -c dns -n "__fish_dns_needs_command" -f -a "answer" -d 'Conclude from verdicts about sites which addresses a name should have, with the reason for each'
complete -c dns -n "__fish_dns_needs_command" -f -a "update" -d 'Make a name have these addresses, or those of the answers on standard input, by signed dynamic update'
complete -c dns -n "__fish_dns_using_subcommand check" -l authority -d 'An authoritative server; auto finds the servers of the name\'s zone and asks each of their addresses' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l resolver -d 'A resolver; the first one also finds the servers for auto [default: none, and the first nameserver of /etc/resolv.conf for auto]' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l type -d 'The type of the records' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l gap -d 'Ask a resolver again after D where one look leaves it open; 0s: do not' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l response-timeout -d 'How long an answer is waited for; the question is sent again after 1s, 3s, 7s, ...' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l interval -d 'From the start of a round to the start of the next; one that takes longer delays it' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l for -d 'End after D with the status of the last round' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c dns -n "__fish_dns_using_subcommand check" -l message -d 'Print the whole message in the words of RFC 8427 too'
complete -c dns -n "__fish_dns_using_subcommand check" -l follow -d 'Go on checking, with all records each round, until the end'
complete -c dns -n "__fish_dns_using_subcommand check" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c dns -n "__fish_dns_using_subcommand check" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c dns -n "__fish_dns_using_subcommand check" -s h -l help -d 'Print help'
complete -c dns -n "__fish_dns_using_subcommand check" -s V -l version -d 'Print version'
complete -c dns -n "__fish_dns_using_subcommand trace" -l until -d 'The addresses of the new answer, all of them; none: the name without an address' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l authority -d 'A server that has the zone' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l resolver -d 'A server that asks others for its clients' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l application -d 'A program that asks the system, and keeps the answer for D, for java\'s 30s, or for ever' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l connect -d 'Connect to the old address at this port again and again, for when it stops serving, and hold one connection' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l type -d 'The type of the addresses' -r -f -a "A\t'IPv4'
AAAA\t'IPv6'"
complete -c dns -n "__fish_dns_using_subcommand trace" -l fault-at -d 'When the old site failed, where --connect does not find it out' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l every -d 'From look to look' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l response-timeout -d 'How long a question or a connection waits for its answer' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l svg -d 'Draw what was seen, at the end' -r -F
complete -c dns -n "__fish_dns_using_subcommand trace" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c dns -n "__fish_dns_using_subcommand trace" -l os -d 'What this system gives a program (getent ahosts)'
complete -c dns -n "__fish_dns_using_subcommand trace" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c dns -n "__fish_dns_using_subcommand trace" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c dns -n "__fish_dns_using_subcommand trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dns -n "__fish_dns_using_subcommand trace" -s V -l version -d 'Print version'
complete -c dns -n "__fish_dns_using_subcommand budget" -l interval -d 'From the start of a probe to the start of the next' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l response-timeout -d 'How long a probe waits for its answer' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l retries -d 'Failed probes in a row that make down' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l success-retries -d 'Good probes in a row that make up' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l down-time -d 'No probe for so long after going down' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l propagation -d 'From the decision until every authoritative server has it' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l ttl -d 'The TTL of the addresses, in seconds' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l floor -d 'Resolvers keep an answer at least so long, in seconds (cache-min-ttl of Unbound, min-cache-ttl of BIND)' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l stale -d 'Resolvers serve stale answers, to be kept for so many seconds (RFC 8767: 30)' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l negative-ttl -d 'How long an answer without an address may be kept: the lower of the SOA\'s TTL and MINIMUM, in seconds' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l os -d 'What the system keeps by a clock of its own: none (glibc, systemd-resolved), or a duration' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l runtime -d 'What the program keeps: none, java (30s), java-forever (with a security manager), browser, curl (60s), nginx (until it is loaded anew), or a duration' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l connection -d 'How long an open connection takes to notice that nobody answers' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l clients -d 'Resolvers that have clients all the time, for the questions that the authority gets' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c dns -n "__fish_dns_using_subcommand budget" -l refused -d 'The site refuses connections when it fails, which counts at once'
complete -c dns -n "__fish_dns_using_subcommand budget" -l empty -d 'When all sites are down the answer has no address (dns answer --all-down empty)'
complete -c dns -n "__fish_dns_using_subcommand budget" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c dns -n "__fish_dns_using_subcommand budget" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c dns -n "__fish_dns_using_subcommand budget" -s h -l help -d 'Print help'
complete -c dns -n "__fish_dns_using_subcommand budget" -s V -l version -d 'Print version'
complete -c dns -n "__fish_dns_using_subcommand answer" -l sites -d 'The sites: a JSON array, JSON lines, or lines NAME ADDR ... weight=W tier=N' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l site -d 'One site' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l type -d 'The addresses that are asked for' -r -f -a "A\t'IPv4'
AAAA\t'IPv6'"
complete -c dns -n "__fish_dns_using_subcommand answer" -l policy -d 'How sites are chosen among those that are up' -r -f -a "round-robin\t'All of them: the server does the rotating'
priority\t'The first in the order given'
weighted\t'One, the more often the higher its weight; an even rotation with --state or --follow'
hash\t'One by the hash of --key: a site\'s death moves its own keys alone'
nearest\t'The first of --order'"
complete -c dns -n "__fish_dns_using_subcommand answer" -l key -d 'What hash chooses by: a client\'s network, a view' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l order -d 'Of nearest: the sites in the order of the view; those that are not named come last' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l view -d 'The view that the answer is for' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l threshold -d 'A tier serves while so much of its weight is up, from 0 to 1' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l all-down -d 'What is answered when no site serves' -r -f -a "all\t'Every address: one may be right'
empty\t'None; the name stays, without an address'
backup\t'Those of --backup'
first-tier\t'Every address of the first tier'
keep\t'The last answer that a site served'"
complete -c dns -n "__fish_dns_using_subcommand answer" -l backup -d 'The addresses of --all-down backup' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l unknown -d 'What a site counts as of which nothing is known' -r -f -a "hold\t'As when it was known last'
down\t'Down'
up\t'Up'"
complete -c dns -n "__fish_dns_using_subcommand answer" -l ttl -d 'How long the answer may be kept, in seconds' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l standby -d 'While FILE.SITE (by default standby.SITE) is there, that site is left out where another is up' -r -F
complete -c dns -n "__fish_dns_using_subcommand answer" -l max-skew -d 'Once, take a record without arrival by its own time, at most so far ahead of ours' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l first-within -d 'In a stream, conclude nothing before every site was heard of, but for at most D: until then what stands in the DNS goes on' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l state -d 'Remember from run to run' -r -F
complete -c dns -n "__fish_dns_using_subcommand answer" -l renew -d 'Repeat the conclusion at least every D, for as long as what it rests on holds' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l for -d 'End after D with the status of the last conclusion' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c dns -n "__fish_dns_using_subcommand answer" -l one -d 'Of round robin one site alone, the next at each conclusion'
complete -c dns -n "__fish_dns_using_subcommand answer" -l follow -d 'Conclude after each step of the input, and print what changed'
complete -c dns -n "__fish_dns_using_subcommand answer" -l pass -d 'Copy each line of input first'
complete -c dns -n "__fish_dns_using_subcommand answer" -l exit-zero -d 'End with status 0 whatever was concluded'
complete -c dns -n "__fish_dns_using_subcommand answer" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c dns -n "__fish_dns_using_subcommand answer" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c dns -n "__fish_dns_using_subcommand answer" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dns -n "__fish_dns_using_subcommand answer" -s V -l version -d 'Print version'
complete -c dns -n "__fish_dns_using_subcommand update" -l server -d 'Where the zone is changed: the primary; several are tried in turn until one takes it' -r
complete -c dns -n "__fish_dns_using_subcommand update" -l tsig-key -d 'The key that the server knows us by: BIND\'s key clause, as tsig-keygen prints it; fd:N too' -r
complete -c dns -n "__fish_dns_using_subcommand update" -l zone -d 'The zone that the name is in [default: what the server says]' -r
complete -c dns -n "__fish_dns_using_subcommand update" -l ttl -d 'How long the addresses may be kept, in seconds [default: the answer\'s; else what stands, else 5]' -r
complete -c dns -n "__fish_dns_using_subcommand update" -l type -d 'Addresses of this type alone' -r -f -a "A\t'IPv4'
AAAA\t'IPv6'"
complete -c dns -n "__fish_dns_using_subcommand update" -l for -d 'End after D' -r
complete -c dns -n "__fish_dns_using_subcommand update" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c dns -n "__fish_dns_using_subcommand update" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c dns -n "__fish_dns_using_subcommand update" -l add -d 'Add the addresses to those that stand'
complete -c dns -n "__fish_dns_using_subcommand update" -l remove -d 'Remove the addresses and leave the others; without any, all'
complete -c dns -n "__fish_dns_using_subcommand update" -l wait -d 'Wait until every authoritative server shows it [default timeout: 15s]'
complete -c dns -n "__fish_dns_using_subcommand update" -l follow -d 'Go on: carry out each answer as it comes'
complete -c dns -n "__fish_dns_using_subcommand update" -l dry-run -d 'Print the exact changes as records and make none'
complete -c dns -n "__fish_dns_using_subcommand update" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c dns -n "__fish_dns_using_subcommand update" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c dns -n "__fish_dns_using_subcommand update" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c dns -n "__fish_dns_using_subcommand update" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dns -n "__fish_dns_using_subcommand update" -s V -l version -d 'Print version'
