# From text and a head list to the bytes of a report: sections 1 to 4 of the page.
use v5.36;
no warnings qw(experimental::builtin surrogate nonchar non_unicode);
use builtin qw(created_as_number is_bool);
use Digest::SHA qw(sha256_hex);
use List::Util qw(all any max min);
use Math::BigInt;
use Math::BigRat;
use POSIX qw(floor frexp);
use Unicode::Normalize qw(NFC);

my $HIGHEST = 2**53 - 1;
sub is_text ($x) { defined $x && !ref $x && !is_bool($x) && !created_as_number($x) }
sub is_whole ($x) { created_as_number($x // "") && $x == floor($x) && abs($x) <= $HIGHEST }
sub wholes ($lowest, @numbers) { all { is_whole($_) && $_ >= $lowest } @numbers }
sub bytes ($text) { utf8::encode($text); return length $text }

# ------------------------------------------------------------------- 1. text, 2. head lists

my $WHITE = qr/[\x09-\x0d\x1c-\x20\x85\xa0\x{1680}\x{2000}-\x{200a}
    \x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]/xx;

sub normalise ($query, $url) {    # undefined: no record
    return undef if "$query$url" =~ /[\x{d800}-\x{dfff}]/;
    return undef if bytes($query) > 1024 || bytes($url) > 4096;
    $query =~ s/(\p{Present_In: 14.0}+)/NFC(fc(NFC($1)))/ge;    # others stay as they are
    $query =~ s/$WHITE+/ /g;
    $query =~ s/^ | $//g;
    $url   =~ s/^$WHITE+|$WHITE+$//g;
    return "$query$url" =~ /\p{Cc}/ || !fits($query, $url) ? undef : [$query, $url];
}

sub fits ($query, $url) {
    return $query ne "" && bytes($query) <= 256 && $url ne "" && bytes($url) <= 1024;
}

my $KEYS = "cohorts epoch listed mechanisms noisy_counts normalisation quantity query_wildcards "
  . "randomizer records reports_until_s schema window_end_s window_start_s";
my $RANDOMIZER = "answers cells_per_answer delta epsilon listed_64ths max_cells_per_answer name "
  . "query_budget_share";

sub has_keys ($x, $keys) { ref $x eq "HASH" && join(" ", sort keys %$x) eq $keys }

sub read_head_list ($bytes) {    # undefined: refused
    my $text = $bytes;
    return undef if length $bytes > 64 << 20 || !utf8::decode($text);
    return undef if $text =~ /[\x{d800}-\x{dfff}]/;
    my $list = eval { parse($text) };
    return undef if !has_keys($list, $KEYS) || !has_keys(my $r = $list->{randomizer}, $RANDOMIZER);
    my ($records, $counts, $schema) = @$list{qw(records noisy_counts schema)};
    my ($epsilon, $delta, $share) = @$r{qw(epsilon delta query_budget_share)};
    my ($start, $end, $until) = @$list{qw(window_start_s window_end_s reports_until_s)};
    return undef unless ref $list->{mechanisms} eq "HASH" && ref $records eq "ARRAY";
    return undef unless ref($counts //= [(0) x @$records]) eq "ARRAY" && @$counts == @$records;
    my @texts = (@$list{qw(quantity schema)}, $r->{name}, values %{ $list->{mechanisms} });
    my $valid = (all { is_text($_) } @texts)
      && (all { ref eq "ARRAY" && @$_ == 2 && (all { is_text($_) } @$_) && fits(@$_) } @$records)
      && (all { created_as_number($_ // "") } $epsilon, $delta, $share)
      && wholes(-$HIGHEST, $list->{normalisation}, @$counts)
      && wholes(0, $start, $end, $until, @$list{qw(epoch listed)})
      && wholes(1, $list->{cohorts}, @$r{qw(answers cells_per_answer max_cells_per_answer)})
      && wholes(1, $r->{listed_64ths}) && $r->{listed_64ths} <= 63
      && $schema eq "blendstream/head-list/2" && is_bool($list->{query_wildcards})
      && $list->{listed} <= @$records && $start < $end && $end <= $until
      && $epsilon > 0 && $epsilon != "inf" && exact($epsilon) * whole(2)**32 >= $r->{answers}
      && $delta >= 0 && $delta < 1 && $share > 0 && $share < 1 && canonical($list) eq $text;
    return undef if !$valid;
    my $listed = [@$records[0 .. $list->{listed} - 1]];
    my $cells  = cells($listed, $list->{query_wildcards}) // return undef;
    return { %$list, id => sha256_hex($bytes), listed => $listed, cells => $cells };
}

sub cells ($listed, $wildcards) {    # undefined: a record twice
    my (%seen, %known);
    return undef if any { $seen{ canonical($_) }++ } @$listed;
    my @queries = $wildcards ? grep { !$known{$_}++ } map { $_->[0] } @$listed : ();
    return [@$listed, (map { [$_, undef] } @queries), [undef, undef]];
}

# ------------------------------------------------------------------------- 3. cell → answer

sub whole ($x) { Math::BigInt->new($x) }

sub exact ($x) {    # a float's value as a fraction
    my ($mantissa, $exponent) = frexp($x);
    my $n = Math::BigRat->new(sprintf "%d", $mantissa * 2**53);
    return $n * Math::BigRat->new(2)->bpow($exponent - 53);
}

sub E ($x) { Math::BigRat->new(exponential($x), whole(2)**32) }

sub exponential ($x) {    # n of E(x) = n/2³²
    my ($n, $d) = $x->parts;
    my $g = 64 + 2 * $x->copy->bceil->numify;
    my ($sum, $i, $term) = (whole(0), 1, whole(2)->bpow(32 + $g));
    while (!$term->is_zero) {
        $sum->badd($term);
        $term = ($term * $n)->bdiv($d * $i++);
    }
    return $sum->brsft($g);
}

# ω, with E(ε/m) = a/d. The page's values, times what does not depend on w, as whole numbers.
sub width ($name, $a, $d, $M, $cap, $share) {
    return 1 if $M <= 1 || $name !~ /^subset/;
    my $selection = sub ($w) {    # q(1 − q)/(p − q)²
        my $D = $a * $w + $d * ($M + 1 - $w);
        return (($D - $a) * ($M * $D - $w * ($D - $a)), $w * whole($M + 1 - $w)**2);
    };
    my $none = sub ($w) {         # s(1 − s)/(t − g)²
        my $f = $d * $w * ($M - 1);
        my $S = 64 * $f + $share * ($w * ($a * ($w - 1) + $d * ($M - $w)) - $f);
        return ($S * (64 * ($M - 1) * ($a * $w + $d * $M) - $S), (whole($w) * ($M - $w))**2);
    };
    my $no_more = sub ($value, $v, $w) {    # value(v) ≤ value(w)
        my ($n, $b, $m, $c) = ($value->($v), $value->($w));
        return $n * $c <= $m * $b;
    };
    my ($low, $high) = (1, min($cap, $M - 1));
    if ($name eq "subset-selection") {
        my $near = (whole($d) * ($M + 1) / ($a + $d))->numify;
        for my $w (map { max(1, min($_, $cap, $M)) } $near, $near + 1) {
            $low = $w if !$no_more->($selection, $low, $w);
        }
        return $low;
    }
    while ($low < $high) {
        my $middle = int(($low + $high) / 2);
        $no_more->($none, $middle, $middle + 1) ? ($high = $middle) : ($low = $middle + 1);
    }
    return $low;
}

sub choose ($n, $w) {    # w of the numbers below n
    my %taken;
    for my $last ($n - $w .. $n - 1) {
        my $r = below($last + 1);
        $taken{ $taken{$r} ? $last : $r } = 1;
    }
    return map { 0 + $_ } keys %taken;
}
sub others ($cell, $n, $w) { map { $_ < $cell ? $_ : $_ + 1 } choose($n - 1, $w) }

# ω and a sub that randomises a cell; nothing for a randomizer to refuse.
sub randomizer ($r, $listed) {
    my ($name, $M) = ($r->{name}, scalar @$listed);
    my ($epsilon, $delta) = map { exact($r->{$_}) / $r->{answers} } qw(epsilon delta);
    my $share = exact($r->{query_budget_share});
    return two_stage($epsilon, $delta, $share, $listed) if $name eq "two-stage";
    return if $name !~ /^(randomized-response|subset-selection|subset-or-none)$/;
    my ($a, $d) = E($epsilon)->parts;
    my $w = width($name, $a, $d, $M, @$r{qw(max_cells_per_answer listed_64ths)});
    my $K = $M + 1;
    my ($aw, $dw) = ($a * $w, $d * $w);
    my $subset = sub ($c) {
        return 0 if $K == 1;
        return others($c, $K, $w) if below($aw + $d * $K - $dw) >= $aw;
        return ($c, others($c, $K, $w - 1));
    };
    my $or_none = sub ($c) {
        return 0 if $M == 0;
        my $drawn = below($aw + $d * $M);
        return choose($M, $w) if $drawn >= $aw;
        return (0 .. $w - 2, $M) if $c == $M || $drawn < $dw;
        return ($c, others($c, $M, $w - 1));
    };
    return ($w, $name eq "subset-or-none" ? $or_none : $subset);
}

sub two_stage ($epsilon, $delta, $share, $listed) {
    my $cells = cells($listed, 1);
    my (%number, @query, @cells_of);    # a cell's query, and a query's cells
    for my $cell (0 .. $#$cells) {
        my $name = canonical($cells->[$cell][0]);
        $number{$name} = keys %number if !exists $number{$name};
        push @{ $cells_of[$query[$cell] = $number{$name}] }, $cell;
    }
    my $truth = sub ($k, $part) {
        my $e = E($epsilon * $part);
        return ($e + $delta * $part * ($k - 1) / 2) / ($e + $k - 1);
    };
    my $k      = @cells_of;
    my $first  = $truth->($k, $share);
    my @sizes  = grep { $_ > 1 } map { scalar @$_ } @cells_of;
    my %second = map { $_ => $truth->($_, 1 - $share) } @sizes;
    return if $k > 1 && $first * $k <= 1 || any { $second{$_} * $_ <= 1 } keys %second;
    my $true = sub ($t) { my ($n, $b) = $t->parts; below($b) < $n };
    return (1, sub ($c) {
        my $mates = $cells_of[$query[$c]];
        if ($k > 1 && !$true->($first)) {
            $mates = $cells_of[(others($query[$c], $k, 1))[0]];
            return $mates->[below(scalar @$mates)];
        }
        return $c if @$mates == 1 || $true->($second{ scalar @$mates });
        return (grep { $_ != $c } @$mates)[below($#$mates)];
    });
}

# ------------------------------------------------------------------------------- 4. report

sub write_report ($id, $cells, $r, $answer, @held) {
    my %number = map { canonical($cells->[$_]) => $_ } 0 .. $#$cells;
    my @drawn  = map { @held ? $held[below(scalar @held)] : undef } 1 .. $r->{answers};
    my $contributor = sprintf "%032s", substr whole(below(whole(2)**128))->as_hex, 2;
    my ($missing, @answers) = 0;
    for my $record (@drawn) {
        my $query = canonical([$record ? $record->[0] : undef, undef]);
        my $cell = $number{ canonical($record) } // $number{$query};
        push @answers, [sort { $a <=> $b } $answer->($cell // $#$cells)];
        $missing += length($#$cells) - length for @{ $answers[-1] };
    }
    my $report = { answers => \@answers, contributor => $contributor, head_list => $id };
    return canonical($report) . " " x $missing;
}
1;
