# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_gw_global_optspecs
    string join \n h/help V/version
end

function __fish_gw_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_gw_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_gw_using_subcommand
    set -l cmd (__fish_gw_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c gw -n "__fish_gw_needs_command" -s h -l help -d 'Print help'
complete -c gw -n "__fish_gw_needs_command" -s V -l version -d 'Print version'
complete -c gw -n "__fish_gw_needs_command" -f -a "apply" -d 'Make the kernel split new flows as the plans on standard input say'
complete -c gw -n "__fish_gw_needs_command" -f -a "clear" -d 'Take a split away: its table, then rules and routes that no other split has'
complete -c gw -n "__fish_gw_needs_command" -f -a "doctor" -d 'Look for what is set so that a gateway seems dead or flows go past the split, and say what mends it'
complete -c gw -n "__fish_gw_needs_command" -f -a "import" -d 'Read the env.conf of BashLb, and print its gateways as --gateways reads them'
complete -c gw -n "__fish_gw_needs_command" -f -a "probe" -d 'Tell whether each gateway forwards: every probe leaves by its own gateway, whatever the main table says'
complete -c gw -n "__fish_gw_needs_command" -f -a "report" -d 'Tell what each gateway of a split carried since the last report'
complete -c gw -n "__fish_gw_needs_command" -f -a "split" -d 'Conclude from verdicts about gateways how new flows are split over them'
complete -c gw -n "__fish_gw_using_subcommand apply" -l by -d 'What decides which gateway a new flow gets' -r -f -a "flow\t'Chance'
client\t'Its source address'
client-destination\t'Both addresses'"
complete -c gw -n "__fish_gw_using_subcommand apply" -l exclude -d 'Leave flows alone that have their source or destination in these' -r
complete -c gw -n "__fish_gw_using_subcommand apply" -l only -d 'Split flows alone that have their source or destination in these' -r
complete -c gw -n "__fish_gw_using_subcommand apply" -l match -d 'Split flows of these kinds alone: tcp, udp, tcp:443, udp:5060-5061, dscp:46' -r
complete -c gw -n "__fish_gw_using_subcommand apply" -l on-eof -d 'What the end of input means with --follow' -r -f -a "keep\t'Leave what stands'
release\t'Take everything away that was applied'"
complete -c gw -n "__fish_gw_using_subcommand apply" -l for -d 'End after D' -r
complete -c gw -n "__fish_gw_using_subcommand apply" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c gw -n "__fish_gw_using_subcommand apply" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c gw -n "__fish_gw_using_subcommand apply" -l flush-dead -d 'Forget the connections of gateways that are dead or have left, so that they begin anew by another'
complete -c gw -n "__fish_gw_using_subcommand apply" -l local -d 'Split what this host itself opens too'
complete -c gw -n "__fish_gw_using_subcommand apply" -l follow -d 'Go on: carry out each plan as it comes, and mend what others take away'
complete -c gw -n "__fish_gw_using_subcommand apply" -l dry-run -d 'Print the exact changes as records and make none'
complete -c gw -n "__fish_gw_using_subcommand apply" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c gw -n "__fish_gw_using_subcommand apply" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c gw -n "__fish_gw_using_subcommand apply" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c gw -n "__fish_gw_using_subcommand apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gw -n "__fish_gw_using_subcommand apply" -s V -l version -d 'Print version'
complete -c gw -n "__fish_gw_using_subcommand clear" -l name -d 'The split' -r
complete -c gw -n "__fish_gw_using_subcommand clear" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c gw -n "__fish_gw_using_subcommand clear" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c gw -n "__fish_gw_using_subcommand clear" -l all -d 'All splits of this host'
complete -c gw -n "__fish_gw_using_subcommand clear" -l dry-run -d 'Print the exact changes as records and make none'
complete -c gw -n "__fish_gw_using_subcommand clear" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c gw -n "__fish_gw_using_subcommand clear" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c gw -n "__fish_gw_using_subcommand clear" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c gw -n "__fish_gw_using_subcommand clear" -s h -l help -d 'Print help'
complete -c gw -n "__fish_gw_using_subcommand clear" -s V -l version -d 'Print version'
complete -c gw -n "__fish_gw_using_subcommand doctor" -l gateways -d 'The gateways: a JSON array, JSON lines as gw import prints them, or lines ADDR key=value ...' -r
complete -c gw -n "__fish_gw_using_subcommand doctor" -l gateway -d 'One gateway: name= dev= weight= tier= expect= method= target=' -r
complete -c gw -n "__fish_gw_using_subcommand doctor" -l mark-mask -d 'The bits of a mark that are ours' -r
complete -c gw -n "__fish_gw_using_subcommand doctor" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c gw -n "__fish_gw_using_subcommand doctor" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c gw -n "__fish_gw_using_subcommand doctor" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c gw -n "__fish_gw_using_subcommand doctor" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c gw -n "__fish_gw_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c gw -n "__fish_gw_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c gw -n "__fish_gw_using_subcommand import" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c gw -n "__fish_gw_using_subcommand import" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c gw -n "__fish_gw_using_subcommand import" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c gw -n "__fish_gw_using_subcommand import" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c gw -n "__fish_gw_using_subcommand import" -s h -l help -d 'Print help'
complete -c gw -n "__fish_gw_using_subcommand import" -s V -l version -d 'Print version'
complete -c gw -n "__fish_gw_using_subcommand probe" -l gateways -d 'The gateways: a JSON array, JSON lines as gw import prints them, or lines ADDR key=value ...' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l gateway -d 'One gateway: name= dev= weight= tier= expect= method= target=' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l method -d 'What a probe asks for, where the gateway does not say it itself' -r -f -a "icmp\t'Echoes'
tcp\t'Connections; a refusal is down at once'
http\t'Answers of HTTP, 200 to 399'
wan-ip\t'The address that the target sees the question come from'
none\t'Nothing: the gateway counts as up'"
complete -c gw -n "__fish_gw_using_subcommand probe" -l target -d 'What is asked through each gateway: ADDR (icmp), HOST:PORT (tcp) or URL (http, wan-ip)' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l need -d 'So many of the targets must be up' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l count -d 'Probes of each target; connections end once the rest cannot change the verdict' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l interval -d 'From probe to probe of one target' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l spacing -d 'From target to target of one gateway, with icmp' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l response-timeout -d 'How long each probe waits for its answer' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l max-loss -d 'The highest loss of a target that is up, in per cent' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s]' -r -F
complete -c gw -n "__fish_gw_using_subcommand probe" -l mark-mask -d 'The bits of a mark that are ours' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l every -d 'From the start of a round to the start of the next' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l valid-for -d 'How long a record holds [default: two rounds and the time that one takes]' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l for -d 'End after D with the status of the last round' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c gw -n "__fish_gw_using_subcommand probe" -l follow -d 'Go on probing, with a record of each gateway each round; the gateways are read anew'
complete -c gw -n "__fish_gw_using_subcommand probe" -l dry-run -d 'Print the exact changes as records and make none'
complete -c gw -n "__fish_gw_using_subcommand probe" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c gw -n "__fish_gw_using_subcommand probe" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c gw -n "__fish_gw_using_subcommand probe" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c gw -n "__fish_gw_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gw -n "__fish_gw_using_subcommand probe" -s V -l version -d 'Print version'
complete -c gw -n "__fish_gw_using_subcommand report" -l state -d 'Remember from run to run' -r -F
complete -c gw -n "__fish_gw_using_subcommand report" -l name -d 'The split' -r
complete -c gw -n "__fish_gw_using_subcommand report" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c gw -n "__fish_gw_using_subcommand report" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c gw -n "__fish_gw_using_subcommand report" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c gw -n "__fish_gw_using_subcommand report" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c gw -n "__fish_gw_using_subcommand report" -s h -l help -d 'Print help'
complete -c gw -n "__fish_gw_using_subcommand report" -s V -l version -d 'Print version'
complete -c gw -n "__fish_gw_using_subcommand split" -l gateways -d 'The gateways: a JSON array, JSON lines as gw import prints them, or lines ADDR key=value ...' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l gateway -d 'One gateway: name= dev= weight= tier= expect= method= target=' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l name -d 'What the plan is called' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l redistribute -d 'Who gets the share of a gateway that is dead' -r -f -a "nearest\t'The nearest living one in the order given, of two the earlier'
proportional\t'All living ones, in proportion'
next-tier\t'The living ones of the next tier, in proportion'"
complete -c gw -n "__fish_gw_using_subcommand split" -l mark-mask -d 'The bits of a mark that are ours' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l standby -d 'While FILE.GATEWAY (by default standby.GATEWAY), by address or name, is there that gateway gets no new flows' -r -F
complete -c gw -n "__fish_gw_using_subcommand split" -l max-skew -d 'Once, take a record without arrival by its own time, at most so far ahead of ours' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l state -d 'Remember from run to run' -r -F
complete -c gw -n "__fish_gw_using_subcommand split" -l renew -d 'Repeat the conclusion at least every D, for as long as what it rests on holds' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l for -d 'End after D with the status of the last conclusion' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c gw -n "__fish_gw_using_subcommand split" -l follow -d 'Conclude after each step of the input, and print what changed'
complete -c gw -n "__fish_gw_using_subcommand split" -l pass -d 'Copy each line of input first'
complete -c gw -n "__fish_gw_using_subcommand split" -l exit-zero -d 'End with status 0 whatever was concluded'
complete -c gw -n "__fish_gw_using_subcommand split" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c gw -n "__fish_gw_using_subcommand split" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c gw -n "__fish_gw_using_subcommand split" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gw -n "__fish_gw_using_subcommand split" -s V -l version -d 'Print version'
