package messages

import "github.com/hearsay-llm/hearsay/proxy/api"

// tools writes the tools and the choice among them.
func (w *writer) tools(f *fields) error {
	list := f.values[fieldTools]
	if !isAbsent(list) && !isArray(list) {
		return api.BadRequest("tools", "'tools' must be an array.")
	}
	some := isArray(list) && !isEmpty(list)
	if some {
		w.str(`,"tools":[`)
		if err := elements(list, w.tool); err != nil {
			return err
		}
		w.str("]")
	}
	return w.toolChoice(f.values[fieldToolChoice], some)
}

func (w *writer) tool(i int, raw []byte) error {
	at := path("tools", i)
	if !isObject(raw) {
		return api.BadRequest(at, "'"+at+"' must be an object.")
	}
	var v [5][]byte
	pick(raw, []string{"type", "name", "input_schema", "description", "strict"}, v[:])
	kind, name, schema, description, strict := v[0], v[1], v[2], v[3], v[4]
	if !isAbsent(kind) && !is(kind, "custom") {
		return api.BadRequest(at+".type", "'"+at+".type' names a tool of Anthropic's own. This model's engine knows only tools that have an input_schema.")
	}
	switch {
	case !isString(name):
		return api.BadRequest(at+".name", "'"+at+".name' must be a string.")
	case !isObject(schema):
		return api.BadRequest(at+".input_schema", "'"+at+".input_schema' must be an object.")
	case !isAbsent(description) && !isString(description):
		return api.BadRequest(at+".description", "'"+at+".description' must be a string.")
	}
	if i > 0 {
		w.str(",")
	}
	w.str(`{"type":"function","function":{"name":`)
	w.raw(name)
	if !isAbsent(description) {
		w.member("description", description)
	}
	w.member("parameters", schema)
	if isTrue(strict) {
		w.member("strict", strict)
	}
	w.str("}}")
	return nil
}

// toolChoice writes which tools may or must be called. Without tools engines refuse to be told.
func (w *writer) toolChoice(raw []byte, some bool) error {
	if isAbsent(raw) {
		return nil
	}
	var v [3][]byte
	pick(raw, []string{"type", "name", "disable_parallel_tool_use"}, v[:])
	kind, name, single := v[0], v[1], v[2]
	forced := is(kind, "any") || is(kind, "tool")
	switch {
	case !some && forced:
		return api.BadRequest("tool_choice", "'tool_choice' asks for a tool, but the request has no 'tools'.")
	case is(kind, "tool") && !isString(name):
		return api.BadRequest("tool_choice.name", "'tool_choice.name' must be the name of a tool.")
	case !forced && !is(kind, "auto") && !is(kind, "none"):
		return api.BadRequest("tool_choice.type", "'tool_choice.type' must be auto, any, tool or none.")
	case !isAbsent(single) && !isTrue(single) && !isFalse(single):
		return api.BadRequest("tool_choice.disable_parallel_tool_use", "'tool_choice.disable_parallel_tool_use' must be true or false.")
	case !some:
		return nil
	}
	switch {
	case is(kind, "any"):
		w.str(`,"tool_choice":"required"`)
	case is(kind, "tool"):
		w.str(`,"tool_choice":{"type":"function","function":{"name":`)
		w.raw(name)
		w.str("}}")
	case is(kind, "none"):
		w.str(`,"tool_choice":"none"`)
	default:
		w.str(`,"tool_choice":"auto"`)
	}
	if isTrue(single) {
		w.str(`,"parallel_tool_calls":false`)
	}
	return nil
}
