# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_store_global_optspecs
    string join \n h/help V/version
end

function __fish_store_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_store_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_store_using_subcommand
    set -l cmd (__fish_store_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c store -n "__fish_store_needs_command" -s h -l help -d 'Print help'
complete -c store -n "__fish_store_needs_command" -s V -l version -d 'Print version'
complete -c store -n "__fish_store_needs_command" -f -a "get" -d 'Print what a key holds; status 1 where it is not there'
complete -c store -n "__fish_store_needs_command" -f -a "list" -d 'Print the keys that begin with a text, sorted, and what each holds'
complete -c store -n "__fish_store_needs_command" -f -a "put" -d 'Have a key hold a value, or store each record of standard input under a key made from it'
complete -c store -n "__fish_store_needs_command" -f -a "delete" -d 'Take away a key, or all that begin with a text'
complete -c store -n "__fish_store_needs_command" -f -a "watch" -d 'Print the keys that begin with a text, then every change of them, none lost and none twice'
complete -c store -n "__fish_store_needs_command" -f -a "lock" -d 'Run a command while this host holds a lock, and end it before another can hold it'
complete -c store -n "__fish_store_needs_command" -f -a "leader" -d 'Tell which node holds a lock; status 1 where none does'
complete -c store -n "__fish_store_using_subcommand get" -l store -d 'The store: file:FOLDER on this machine, or etcd:URL,URL,... [default: the variable FAILOVER_STORE, else file:/var/lib/failover/store]' -r
complete -c store -n "__fish_store_using_subcommand get" -l user -d 'A line NAME:PASSWORD, in a file that nobody else may read (etcd)' -r -F
complete -c store -n "__fish_store_using_subcommand get" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s] (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand get" -l cert -d 'Show this certificate (PEM) (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand get" -l cert-key -d 'The private key of --cert (PEM), in a file that nobody else may read' -r -F
complete -c store -n "__fish_store_using_subcommand get" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c store -n "__fish_store_using_subcommand get" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c store -n "__fish_store_using_subcommand get" -l raw -d 'Print the bytes that it holds and nothing else'
complete -c store -n "__fish_store_using_subcommand get" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c store -n "__fish_store_using_subcommand get" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c store -n "__fish_store_using_subcommand get" -s h -l help -d 'Print help'
complete -c store -n "__fish_store_using_subcommand get" -s V -l version -d 'Print version'
complete -c store -n "__fish_store_using_subcommand list" -l store -d 'The store: file:FOLDER on this machine, or etcd:URL,URL,... [default: the variable FAILOVER_STORE, else file:/var/lib/failover/store]' -r
complete -c store -n "__fish_store_using_subcommand list" -l user -d 'A line NAME:PASSWORD, in a file that nobody else may read (etcd)' -r -F
complete -c store -n "__fish_store_using_subcommand list" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s] (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand list" -l cert -d 'Show this certificate (PEM) (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand list" -l cert-key -d 'The private key of --cert (PEM), in a file that nobody else may read' -r -F
complete -c store -n "__fish_store_using_subcommand list" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c store -n "__fish_store_using_subcommand list" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c store -n "__fish_store_using_subcommand list" -l records -d 'Print the stored records themselves, as they were put, for a filter'
complete -c store -n "__fish_store_using_subcommand list" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c store -n "__fish_store_using_subcommand list" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c store -n "__fish_store_using_subcommand list" -s h -l help -d 'Print help'
complete -c store -n "__fish_store_using_subcommand list" -s V -l version -d 'Print version'
complete -c store -n "__fish_store_using_subcommand put" -l key -d 'Store each record of standard input under this key, {FIELD} being what the record has there' -r
complete -c store -n "__fish_store_using_subcommand put" -l lease -d 'It ends after D; a stream keeps it as long as it runs, and D longer' -r
complete -c store -n "__fish_store_using_subcommand put" -l if-revision -d 'Only if this revision was the last to change it (0: it is not there); status 1 where another was' -r
complete -c store -n "__fish_store_using_subcommand put" -l holding -d 'Only while the lock NAME is held with the token in STORE_TOKEN; status 76 where it is not' -r
complete -c store -n "__fish_store_using_subcommand put" -l store -d 'The store: file:FOLDER on this machine, or etcd:URL,URL,... [default: the variable FAILOVER_STORE, else file:/var/lib/failover/store]' -r
complete -c store -n "__fish_store_using_subcommand put" -l user -d 'A line NAME:PASSWORD, in a file that nobody else may read (etcd)' -r -F
complete -c store -n "__fish_store_using_subcommand put" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s] (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand put" -l cert -d 'Show this certificate (PEM) (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand put" -l cert-key -d 'The private key of --cert (PEM), in a file that nobody else may read' -r -F
complete -c store -n "__fish_store_using_subcommand put" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c store -n "__fish_store_using_subcommand put" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c store -n "__fish_store_using_subcommand put" -l if-absent -d 'Only if the key is not there; status 1 where it is'
complete -c store -n "__fish_store_using_subcommand put" -l dry-run -d 'Print the exact changes as records and make none'
complete -c store -n "__fish_store_using_subcommand put" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c store -n "__fish_store_using_subcommand put" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c store -n "__fish_store_using_subcommand put" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c store -n "__fish_store_using_subcommand put" -s h -l help -d 'Print help'
complete -c store -n "__fish_store_using_subcommand put" -s V -l version -d 'Print version'
complete -c store -n "__fish_store_using_subcommand delete" -l prefix -d 'All keys that begin so, instead of one' -r
complete -c store -n "__fish_store_using_subcommand delete" -l if-revision -d 'Only if this revision was the last to change it; status 1 where another was' -r
complete -c store -n "__fish_store_using_subcommand delete" -l holding -d 'Only while the lock NAME is held with the token in STORE_TOKEN; status 76 where it is not' -r
complete -c store -n "__fish_store_using_subcommand delete" -l store -d 'The store: file:FOLDER on this machine, or etcd:URL,URL,... [default: the variable FAILOVER_STORE, else file:/var/lib/failover/store]' -r
complete -c store -n "__fish_store_using_subcommand delete" -l user -d 'A line NAME:PASSWORD, in a file that nobody else may read (etcd)' -r -F
complete -c store -n "__fish_store_using_subcommand delete" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s] (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand delete" -l cert -d 'Show this certificate (PEM) (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand delete" -l cert-key -d 'The private key of --cert (PEM), in a file that nobody else may read' -r -F
complete -c store -n "__fish_store_using_subcommand delete" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c store -n "__fish_store_using_subcommand delete" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c store -n "__fish_store_using_subcommand delete" -l dry-run -d 'Print the exact changes as records and make none'
complete -c store -n "__fish_store_using_subcommand delete" -l explain -d 'Print the exact changes in the records of a real run too'
complete -c store -n "__fish_store_using_subcommand delete" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c store -n "__fish_store_using_subcommand delete" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c store -n "__fish_store_using_subcommand delete" -s h -l help -d 'Print help'
complete -c store -n "__fish_store_using_subcommand delete" -s V -l version -d 'Print version'
complete -c store -n "__fish_store_using_subcommand watch" -l for -d 'End after D, with status 0' -r
complete -c store -n "__fish_store_using_subcommand watch" -l store -d 'The store: file:FOLDER on this machine, or etcd:URL,URL,... [default: the variable FAILOVER_STORE, else file:/var/lib/failover/store]' -r
complete -c store -n "__fish_store_using_subcommand watch" -l user -d 'A line NAME:PASSWORD, in a file that nobody else may read (etcd)' -r -F
complete -c store -n "__fish_store_using_subcommand watch" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s] (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand watch" -l cert -d 'Show this certificate (PEM) (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand watch" -l cert-key -d 'The private key of --cert (PEM), in a file that nobody else may read' -r -F
complete -c store -n "__fish_store_using_subcommand watch" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c store -n "__fish_store_using_subcommand watch" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c store -n "__fish_store_using_subcommand watch" -l records -d 'Print the stored records themselves, as they were put, for a filter; what is deleted says nothing'
complete -c store -n "__fish_store_using_subcommand watch" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c store -n "__fish_store_using_subcommand watch" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c store -n "__fish_store_using_subcommand watch" -s h -l help -d 'Print help'
complete -c store -n "__fish_store_using_subcommand watch" -s V -l version -d 'Print version'
complete -c store -n "__fish_store_using_subcommand lock" -l ttl -d 'How long the lock outlives a holder that does not renew it; etcd takes whole seconds and has a least of its own' -r
complete -c store -n "__fish_store_using_subcommand lock" -l margin -d 'So long before the lock could be another\'s the command is told to end, and killed at half of it [default: a quarter of the ttl that was granted]' -r
complete -c store -n "__fish_store_using_subcommand lock" -l kill-after -d 'After TERM, INT or HUP the command has so long to end' -r
complete -c store -n "__fish_store_using_subcommand lock" -l on-lost -d 'Run this program when the lock is lost; it is told by STORE_LOCK and STORE_TOKEN' -r -F
complete -c store -n "__fish_store_using_subcommand lock" -l on-lost-limit -d 'So long that program may take' -r
complete -c store -n "__fish_store_using_subcommand lock" -l proven-off -d 'A holder on NODE whose token is below REVISION is proven off: its lock is taken at once' -r
complete -c store -n "__fish_store_using_subcommand lock" -l events -d 'Write what becomes of the lock to FILE, a record a line' -r
complete -c store -n "__fish_store_using_subcommand lock" -l store -d 'The store: file:FOLDER on this machine, or etcd:URL,URL,... [default: the variable FAILOVER_STORE, else file:/var/lib/failover/store]' -r
complete -c store -n "__fish_store_using_subcommand lock" -l user -d 'A line NAME:PASSWORD, in a file that nobody else may read (etcd)' -r -F
complete -c store -n "__fish_store_using_subcommand lock" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s] (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand lock" -l cert -d 'Show this certificate (PEM) (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand lock" -l cert-key -d 'The private key of --cert (PEM), in a file that nobody else may read' -r -F
complete -c store -n "__fish_store_using_subcommand lock" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c store -n "__fish_store_using_subcommand lock" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c store -n "__fish_store_using_subcommand lock" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c store -n "__fish_store_using_subcommand lock" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c store -n "__fish_store_using_subcommand lock" -s h -l help -d 'Print help'
complete -c store -n "__fish_store_using_subcommand lock" -s V -l version -d 'Print version'
complete -c store -n "__fish_store_using_subcommand leader" -l for -d 'End after D with the status of the last answer' -r
complete -c store -n "__fish_store_using_subcommand leader" -l store -d 'The store: file:FOLDER on this machine, or etcd:URL,URL,... [default: the variable FAILOVER_STORE, else file:/var/lib/failover/store]' -r
complete -c store -n "__fish_store_using_subcommand leader" -l user -d 'A line NAME:PASSWORD, in a file that nobody else may read (etcd)' -r -F
complete -c store -n "__fish_store_using_subcommand leader" -l ca -d 'Trust the certificates in FILE (PEM) and no others [default: the system\'s] (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand leader" -l cert -d 'Show this certificate (PEM) (etcd, https)' -r -F
complete -c store -n "__fish_store_using_subcommand leader" -l cert-key -d 'The private key of --cert (PEM), in a file that nobody else may read' -r -F
complete -c store -n "__fish_store_using_subcommand leader" -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c store -n "__fish_store_using_subcommand leader" -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c store -n "__fish_store_using_subcommand leader" -l follow -d 'Tell each change of holder too'
complete -c store -n "__fish_store_using_subcommand leader" -s t -l table -d 'Print a table for a person instead of JSON'
complete -c store -n "__fish_store_using_subcommand leader" -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c store -n "__fish_store_using_subcommand leader" -s h -l help -d 'Print help'
complete -c store -n "__fish_store_using_subcommand leader" -s V -l version -d 'Print version'
