# Search on the device, in a publication: section 7 of the page.
use v5.36;
no warnings qw(experimental::builtin surrogate nonchar non_unicode);
use builtin qw(created_as_number true false);
use List::Util qw(all any min);

sub search ($text, $filtered) {    # dies where the publication is refused
    my $document = parse($text);
    die "shape" if ref $document ne "HASH" || !is_text($document->{schema});
    die "schema" if $document->{schema} ne "blendstream/estimates/2";
    die "epoch" if !wholes(0, $document->{epoch});
    my ($records, $queries, $all) = @$document{qw(records queries filtered)};
    die "no filtered" if !exists $document->{filtered} || defined $all && ref $all ne "HASH";
    my ($urls, $more) = $all ? @$all{qw(unlisted unlisted_queries)} : ([], []);
    die "no list" if any { ref ne "ARRAY" } $records, $queries, $urls, $more;
    my $own = ($document->{agreement} // {})->{prefer} // "blend";
    die "prefer" if $own !~ /^(blend|client)$/;
    my $row = sub ($row, @keys) {
        die "row" if ref $row ne "HASH" || any { !exists $row->{$_} } @keys;
        for my $estimate (grep { defined } @$row{qw(optin client blend filtered)}) {
            die "figure" if ref $estimate ne "HASH";
            die "key" if any { !exists $estimate->{$_} } qw(probability variance low high);
        }
        my $known = defined +($row->{filtered} // {})->{probability};
        my $name = $filtered && $all && $known && !$row->{disputed} ? "filtered" : $own;
        my @shown = @{ $row->{$name} // {} }{qw(probability low high)};
        return if !defined $shown[0];
        die "number" if !all { created_as_number($_ // "") && abs($_) < 1e300 } @shown;
        return if any { !defined $row->{$_} } grep { /query|url/ } @keys;
        return [@$row{qw(query url)}, @shown, $row->{disputed} ? true : false, $name];
    };
    my $rows = sub ($listed, $unlisted, @keys) {
        my @rows = map { $row->($_, @keys, "filtered", "disputed") } @$listed;
        push @rows, map { $row->($_, @keys, "filtered") } $filtered ? @$unlisted : ();
        my $by_text = sub ($x, $y) { $x->[0] cmp $y->[0] || ($x->[1] // "") cmp($y->[1] // "") };
        return [sort { $b->[2] <=> $a->[2] || $by_text->($a, $b) } @rows];
    };
    my $read = $filtered && $all ? "filtered" : $own;
    my $found = $rows->($records, $urls, "query", "url");
    return ($document, $read, $found, $rows->($queries, $more, "query"));
}

sub found ($step) {
    my ($document, $read, $records, $queries) = eval { search(@$step{qw(text filtered)}) };
    return undef if !$document;
    my $search = sub ($typed) {
        my $asked = normalise($typed, "u") // return [];
        return [map { [@$_[1 .. 6]] } grep { $_->[0] eq $asked->[0] } @$records];
    };
    my $complete = sub ($typed) {
        my $asked = normalise("$typed.", "u") // return [];
        my $prefix = substr $asked->[0], 0, -1;
        return [map { $_->[0] } grep { index($_->[0], $prefix) == 0 } @$queries];
    };
    my $at_least = $document->{queries_at_least} ? true : false;
    my @trends = map { [@$_[0, 2 .. 6], $at_least] } @$queries;
    splice @trends, min($step->{trends}, scalar @trends);
    my %found = (read => $read, epoch => $document->{epoch}, trends => \@trends);
    $found{empty}    = @$records || @$queries ? false : true;
    $found{search}   = [map { $search->($_) } @{ $step->{search} }];
    $found{complete} = [map { $complete->($_) } @{ $step->{complete} }];
    return \%found;
}
1;
