complete -c place -l service -d 'A service; with KEY=VALUE of home, cpu, memory, bandwidth, require' -r
complete -c place -l services -d 'The services: a JSON array, JSON lines, or lines NAME KEY=VALUE ...' -r
complete -c place -l need -d 'What each service needs that does not say itself: processors, bytes (4G), bits a second (1G)' -r
complete -c place -l require -d 'What a node must satisfy: KEY(=|!=|<|<=|>|>=)VALUE on a field or label' -r
complete -c place -l policy -d 'How one is chosen among the nodes that fit' -r -f -a "least-services\t'The node that runs the fewest; of equals the first by name'
round-robin\t'The next by name after the last one'
weighted\t'By chance, the more often the more of its resources would be left'"
complete -c place -l threshold -d 'Of weighted: where the best weight is lower, the draw is inverted, from 0 to 1' -r
complete -c place -l home -d 'Bring services back to their home once it has been up for D [default, without D: 60s]' -r
complete -c place -l max-moves -d 'Move so many services in one conclusion at the most, those of dead nodes first' -r
complete -c place -l fencing -d 'What lets a service leave a node that is down' -r -f -a "required\t'A record of fence'
none\t'That it is down: what still runs there runs twice'"
complete -c place -l simulate -d 'Print how N services like each one would be spread, and place none' -r
complete -c place -l random-seed -d 'Draw from N, as the records of an earlier run say' -r
complete -c place -l members -d 'The nodes that may run services [default: those that the input names]' -r
complete -c place -l first-within -d 'In a stream, place nothing before every member was heard of, but for at most D; without --members for D' -r
complete -c place -l standby -d 'While FILE is there this node gets nothing and gives all away, while FILE.NODE is there that node; while FILE.SERVICE is there that service is left alone; the text is the reason' -r -F
complete -c place -l state -d 'Remember from run to run' -r -F
complete -c place -l renew -d 'Repeat the conclusion at least every D, for as long as what it rests on holds' -r
complete -c place -l for -d 'End after D with the status of the last conclusion' -r
complete -c place -l node -d 'Call this node NAME in records [default: the variable FAILOVER_NODE, else the host name]' -r
complete -c place -l timeout -d 'End undecided (status 75) after D [default: 5s beyond the planned time; none for streams]' -r
complete -c place -l sticky -d 'Move no service for a better node'
complete -c place -l explain -d 'Print every node\'s verdict for every service'
complete -c place -l quorum -d 'Place and move nothing without a word of quorum; without this flag a run that hears none does not wait for it'
complete -c place -l follow -d 'Conclude after each step of the input, and print what changed'
complete -c place -l pass -d 'Copy each line of input first'
complete -c place -l exit-zero -d 'End with status 0 whatever was concluded'
complete -c place -s t -l table -d 'Print a table for a person instead of JSON'
complete -c place -l schema -d 'Print the JSON Schema of what this writes, and do nothing else'
complete -c place -s h -l help -d 'Print help (see more with \'--help\')'
complete -c place -s V -l version -d 'Print version'
