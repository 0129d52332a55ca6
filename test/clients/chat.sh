# Asks a router what a user of curl would ask, and prints a line of JSON for each check.
api=$1 model=$2
json='Content-Type: application/json'

# check NAME WANT OUTPUT: the output has to match the extended regular expression.
check() {
	if printf '%s' "$3" | tr -d '\n' | grep -Eq "$2"; then
		printf '{"name":"%s","error":""}\n' "$1"
	else
		printf '{"name":"%s","error":"no %s in what came"}\n' "$1" "$(printf '%s' "$2" | tr -d '"\\')"
	fi
}

user='"messages":[{"role":"user","content":"What is the weather?"}]'
tools='"tools":[{"type":"function","function":{"name":"weather"}}],"tool_choice":"required"'
check models "\"$model\"" "$(curl -sS "$api/v1/models")"
check chat '"completion_tokens":7' "$(curl -sS "$api/v1/chat/completions" -H "$json" -d "{\"model\":\"$model\",$user,\"max_tokens\":7}")"
check 'chat of a chunked body' '"completion_tokens":7' "$(printf '%s' "{\"model\":\"$model\",$user,\"max_tokens\":7}" |
	curl -sS "$api/v1/chat/completions" -H "$json" -H 'Transfer-Encoding: chunked' -d @-)"
check 'streamed tool call' '"name":"weather".*"finish_reason":"tool_calls".*data: \[DONE\]' \
	"$(curl -sSN "$api/v1/chat/completions" -H "$json" -d "{\"model\":\"$model\",$user,$tools,\"max_tokens\":12,\"stream\":true}")"
check 'HTTP/1.0' 'data: \[DONE\]' "$(curl -sSN --http1.0 "$api/v1/chat/completions" -H "$json" -d "{\"model\":\"$model\",$user,\"max_tokens\":7,\"stream\":true}")"
check 'unknown model' '404.*no-such-model' "$(curl -sSi "$api/v1/chat/completions" -H "$json" -d "{\"model\":\"no-such-model\",$user}")"
