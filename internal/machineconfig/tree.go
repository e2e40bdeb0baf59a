package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// mainDocument is how the document without a kind is called here: machine and cluster are in it.
const mainDocument = "v1alpha1"

// A document of a configuration, as plain maps, lists and scalars. Unlike Talos's own types it can hold what only a newer
// Talos knows.
type document struct {
	// id is its kind, and its name if it has one.
	id   string
	body map[string]any
}

// parse reads the documents of a configuration. The error shows nothing of them.
func parse(data []byte) ([]document, error) {
	var all []document
	seen := map[string]bool{}
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var raw any
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("it is not YAML%s", where(err))
		}
		if raw == nil {
			continue
		}
		body, ok := plain(raw).(map[string]any)
		if !ok {
			return nil, errors.New("one of its documents is not a map")
		}
		doc := document{id: idOf(body), body: body}
		if seen[doc.id] {
			return nil, fmt.Errorf("it has document %q twice", doc.id)
		}
		seen[doc.id] = true
		all = append(all, doc)
	}
}

func idOf(body map[string]any) string {
	kind := text(body, "kind")
	if kind == "" {
		return mainDocument
	}
	if name := text(body, "name"); name != "" {
		return kind + "/" + name
	}
	return kind
}

// find returns the body of a document, or nil.
func find(all []document, id string) map[string]any {
	i := slices.IndexFunc(all, func(d document) bool { return d.id == id })
	if i < 0 {
		return nil
	}
	return all[i].body
}

// text returns the string at a path of keys; empty if there is none.
func text(body map[string]any, path ...string) string {
	for _, key := range path[:len(path)-1] {
		body, _ = body[key].(map[string]any)
	}
	s, _ := body[path[len(path)-1]].(string)
	return s
}

// plain makes all keys strings and drops what is empty: Talos takes an empty map, list or null for nothing at all.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return plainMap(maps.All(v))
	case map[any]any:
		return plainMap(maps.All(v))
	case []any:
		var all []any
		for _, e := range v {
			all = append(all, plain(e))
		}
		if len(all) > 0 {
			return all
		}
		return nil
	}
	return v
}

func plainMap[K comparable](all func(func(K, any) bool)) any {
	m := map[string]any{}
	for k, v := range all {
		if p := plain(v); p != nil {
			m[fmt.Sprint(k)] = p
		}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// A path leads to a value: keys, and indexes of lists.
type path []string

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// String writes a path as it is written in texts for people.
func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case strings.HasPrefix(s, "["):
			b.WriteString(s)
		case !plainKey.MatchString(s):
			fmt.Fprintf(&b, "[%q]", s)
		case i > 0:
			b.WriteString("." + s)
		default:
			b.WriteString(s)
		}
	}
	return b.String()
}

func (p path) to(step string) path { return append(slices.Clone(p), step) }

// leaves calls visit with every scalar below v, in order.
func leaves(v any, at path, visit func(path, any)) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			leaves(v[k], at.to(k), visit)
		}
	case []any:
		for i, e := range v {
			leaves(e, at.to(index(i)), visit)
		}
	default:
		visit(at, v)
	}
}

// differences calls visit with every place where a and b differ, in order. What is missing is nil.
func differences(a, b any, at path, visit func(at path, a, b any)) {
	if ma, mb, ok := both[map[string]any](a, b); ok {
		keys := slices.AppendSeq(slices.Collect(maps.Keys(ma)), maps.Keys(mb))
		slices.Sort(keys)
		for _, k := range slices.Compact(keys) {
			differences(ma[k], mb[k], at.to(k), visit)
		}
		return
	}
	if la, lb, ok := both[[]any](a, b); ok {
		for i := range max(len(la), len(lb)) {
			differences(element(la, i), element(lb, i), at.to(index(i)), visit)
		}
		return
	}
	if isScalar(a) && isScalar(b) {
		if a != b {
			visit(at, a, b)
		}
		return
	}
	leaves(a, at, func(p path, v any) { visit(p, v, nil) })
	leaves(b, at, func(p path, v any) { visit(p, nil, v) })
}

// both returns two values of one type, of which one may be missing.
func both[T any](a, b any) (ta, tb T, ok bool) {
	ta, isA := a.(T)
	tb, isB := b.(T)
	return ta, tb, (isA || a == nil) && (isB || b == nil) && (isA || isB)
}

func isScalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func element(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }
