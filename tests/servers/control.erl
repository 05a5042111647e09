%% Evaluated by a private RabbitMQ node after it has booted: answers Erlang expressions over a Unix socket.
%%
%% rabbitmqctl starts an Erlang machine for each command, a second or two; an expression here takes a
%% millisecond. The socket lies in a folder that only the node's owner may enter. A request is an expression,
%% an answer is JSON, each behind its length in four bytes.

Path = os:getenv("TIDEWHEEL_CONTROL"),

Answer = fun(Text) ->
    try
        {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text)),
        {ok, Expressions} = erl_parse:parse_exprs(Tokens),
        {value, Value, _} = erl_eval:exprs(Expressions, erl_eval:new_bindings()),
        iolist_to_binary(rabbit_json:encode(#{ok => Value}))
    catch
        Class:Reason:_ ->
            Said = unicode:characters_to_binary(io_lib:format("~0tp: ~0tp", [Class, Reason])),
            iolist_to_binary(rabbit_json:encode(#{error => Said}))
    end
end,

Serve = fun Serve(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Text} -> gen_tcp:send(Socket, Answer(Text)), Serve(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end
end,

Accept = fun Accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Server = spawn(fun() -> receive serve -> Serve(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Server),
    Server ! serve,
    Accept(Listener)
end,

spawn(fun() ->
    file:delete(Path),
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {packet, 4}, {ifaddr, {local, Path}}]),
    Accept(Listener)
end).
