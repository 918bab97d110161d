%% distribution.erl: two Erlang nodes. The client calls the server, sends large terms, has many
%% processes talk at once, and prints a sum of all that came back.
-module(distribution).
-export([server/0, client/1, echo/0, work/2]).

server() ->
    register(echo, spawn(?MODULE, echo, [])).

echo() ->
    receive
        {From, Tag, Term} -> From ! {Tag, erlang:phash2(Term), Term}, echo();
        stop -> init:stop()
    end.

term(N) ->
    {N, lists:seq(1, N rem 500), binary:copy(<<N:32, "some words">>, N rem 3000),
     #{n => N, s => integer_to_list(N)}}.

ask(Node, Tag, Term) ->
    {echo, Node} ! {self(), Tag, Term},
    receive {Tag, Hash, Back} -> Back = Term, Hash after 30000 -> exit({no_answer, Tag}) end.

work(Parent, {Node, Who}) ->
    Hashes = [ask(Node, N, term(N * Who)) || N <- lists:seq(1, 300)],
    Parent ! {done, Who, erlang:phash2(Hashes)}.

client([Node]) ->
    spawn(fun() ->
        try
            run(Node), init:stop()
        catch C:R:S ->
            io:format(standard_error, "~p~n", [{C, R, S}]), halt(1)
        end
    end).

run(Node) ->
    pong = net_adm:ping(Node),
    One = [ask(Node, N, term(N)) || N <- lists:seq(1, 3000)],
    io:format("one ~w~n", [erlang:phash2(One)]),
    Large = [ask(Node, N, binary:copy(<<N:64>>, 200000)) || N <- lists:seq(1, 20)],
    io:format("large ~w~n", [erlang:phash2(Large)]),
    [spawn_link(?MODULE, work, [self(), {Node, W}]) || W <- lists:seq(1, 30)],
    Many = lists:sort([receive {done, W, H} -> {W, H} after 40000 -> exit(slow) end
                       || _ <- lists:seq(1, 30)]),
    io:format("many ~w~n", [erlang:phash2(Many)]),
    Called = [rpc:call(Node, lists, sum, [lists:seq(1, N)]) || N <- lists:seq(1, 1000)],
    io:format("rpc ~w~n", [lists:sum(Called)]),
    Keys = rpc:parallel_eval([{erlang, phash2, [N]} || N <- lists:seq(1, 200)]),
    io:format("parallel ~w~n", [erlang:phash2(Keys)]),
    {echo, Node} ! stop,
    erlang:monitor_node(Node, true),
    receive {nodedown, Node} -> ok after 20000 -> exit(still_up) end.
