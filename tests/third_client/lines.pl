# JSON, and the lines that play.py exchanges with client.pl.
use v5.36;
no warnings qw(experimental::builtin surrogate nonchar non_unicode);
use builtin qw(created_as_number is_bool true false);
use List::Util qw(first max);
use POSIX qw(floor strtod);

my %ESCAPES = (b => "\b", f => "\f", n => "\n", r => "\r", t => "\t", map { $_ => $_ } qw(" \\));
my %ESCAPED = map { $ESCAPES{$_} => "\\$_" } keys %ESCAPES;

sub parse ($text) {    # dies where the text is no JSON
    for ($text) {
        my $value = value();
        return /\G[ \t\r\n]*\z/gc ? $value : die "text after the value";
    }
}

sub value {
    /\G[ \t\r\n]*/gc;
    return { null => undef, true => true, false => false }->{$1} if /\G(null|true|false)/gc;
    return string() if /\G"/gc;
    return $2 ne "" ? scalar strtod("$1$2") : 0 + $1
      if /\G(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)/gc;
    return [members("]", \&value)] if /\G\[/gc;
    return { members("}", \&pair) } if /\G\{/gc;
    die "no value";
}

sub pair {
    my $key = /\G[ \t\r\n]*"/gc ? string() : die "no key";
    return ($key, /\G[ \t\r\n]*:/gc ? scalar value() : die "no colon");
}

sub members ($end, $member) {
    my @members;
    return if /\G[ \t\r\n]*\Q$end\E/gc;
    do { push @members, $member->() } while /\G[ \t\r\n]*,/gc;
    return /\G[ \t\r\n]*\Q$end\E/gc ? @members : die "no $end";
}

sub string {
    my $text = "";
    until (/\G"/gc) {
        if (/\G([^"\\\x00-\x1f]+)/gc) { $text .= $1 }
        elsif (/\G\\u(d[89ab]..)\\u(d[c-f]..)/gci) {
            $text .= chr 0x10000 + ((hex($1) & 0x3ff) << 10) + (hex($2) & 0x3ff);
        }
        elsif (/\G\\u([0-9a-f]{4})/gci) { $text .= chr hex $1 }
        elsif (/\G\\(["\\\/bfnrt])/gc)  { $text .= $ESCAPES{$1} // $1 }
        else                            { die "no string" }
    }
    return $text;
}

sub float ($x) {    # as Python's repr
    my $shortest = first { strtod($_) == $x } map { sprintf "%.${_}e", $x } 0 .. 16;
    my ($places, $exponent) = ($shortest // "") =~ /^-?\d\.?(\d*)e(.+)$/ or return "no number";
    return $shortest if $exponent < -4 || $exponent >= 16;
    return sprintf "%.*f", max(1, length($places) - $exponent), $x;
}

sub canonical ($x, $key = "") {
    return "null" if !defined $x;
    return $x ? "true" : "false" if is_bool $x;
    return "[" . join(",", map { canonical($_) } @$x) . "]" if ref $x eq "ARRAY";
    my @pairs = map { canonical($_) . ":" . canonical($x->{$_}, $_) } ref $x ? sort keys %$x : ();
    return "{" . join(",", @pairs) . "}" if ref $x;
    return '"' . $x =~ s/([\x00-\x1f"\\])/$ESCAPED{$1} \/\/ sprintf "\\u%04x", ord $1/ger . '"'
      if !created_as_number $x;
    my $float = $key =~ /^(epsilon|delta|query_budget_share)$/ || $x != floor($x);
    return $float || abs($x) >= 2**53 ? float($x) : sprintf "%d", $x;
}

sub ascii ($text) { $text =~ s/([^\x00-\x7f])/escaped(ord $1)/ger }

sub escaped ($c) {    # as UTF-16
    return sprintf "\\u%04x", $c if $c < 0x10000;
    return sprintf "\\u%04x\\u%04x", 0xd7c0 + ($c >> 10), 0xdc00 + ($c & 0x3ff);
}

sub ask ($line) { say ascii(canonical($line)); return parse(scalar <STDIN> // exit) }

sub below ($bound) {
    say qq({"below":"$bound"});
    my ($drawn) = (<STDIN> // exit) =~ /"([0-9]+)"/;
    return length $drawn < 15 ? 0 + $drawn : Math::BigInt->new($drawn);
}

sub request ($method, $path, $headers, $body) {
    my %request = (method => $method, path => $path, headers => $headers, body => $body);
    return ask({ request => \%request })->{response} // {};
}

sub serve ($steps) {
    $| = 1;
    while (defined(my $line = <STDIN>)) {
        my $step = parse($line);
        say ascii(canonical({ result => scalar $steps->{ $step->{do} }->($step) }));
    }
}
1;
