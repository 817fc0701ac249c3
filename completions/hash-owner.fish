complete -c hash-owner -l total -d 'Number of buckets' -r
complete -c hash-owner -l seed -d 'Seed of the hash, decimal or 0x…' -r
complete -c hash-owner -l algo -d 'Hash as this part of the kernel does' -r -f -a "nft\t''
xt-cluster\t''
clusterip\t''
hmark\t''"
complete -c hash-owner -l mode -d 'Hash ports too, of protocols that have them' -r -f -a "sourceip\t''
sourceip-sourceport\t''
sourceip-sourceport-destport\t''"
complete -c hash-owner -l fields -d 'Hash these fields in this order, as one nft concatenation or one --hmark-tuple: saddr, daddr, sport, dport, proto, joined by dots' -r
complete -c hash-owner -l kernel -d 'Hash as this kernel does: 3.10, 2.6.24, el7, what uname -r prints [default: the newest that has the algorithm]' -r
complete -c hash-owner -l local -d 'Tell whether the bucket is one of these; a single flow that is not gives status 1' -r
complete -c hash-owner -l owners -d 'Name the owner by this map: a file of \'node LIST\' lines or bucket plan records, or node=LIST,…' -r
complete -c hash-owner -l moves -d 'Print the flows that have another owner under map B than under map A' -r
complete -c hash-owner -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c hash-owner -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c hash-owner -l big-endian -d 'Hash as nodes with a big-endian CPU do'
complete -c hash-owner -l brief -d 'Print the bucket alone, one a line'
complete -c hash-owner -l summary -d 'Print how the flows spread over the buckets, and nothing for each'
complete -c hash-owner -s t -l table -d 'Print a table for a person instead of JSON'
complete -c hash-owner -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c hash-owner -s h -l help -d 'Print help'
complete -c hash-owner -s V -l version -d 'Print version'
