package confine

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Names of files, arguments and variables are bytes, and JSON carries text: the
// encoder puts a replacement where bytes are none. A path with such a name would
// then be another path, one that is missing, and so neither denied nor protected.
// What the runner and the init tell each other is therefore written with bytes
// that are no text as marks.

// mark stands before two hexadecimal digits of one byte. It is no character of
// any text; where it occurs its own bytes are written so.
const mark = "\U0010FFFF"

// Marshal is json.Marshal for values whose strings may hold any bytes. Strings
// that are keys of maps are left as they are.
func Marshal(v any) ([]byte, error) {
	if value := reflect.ValueOf(v); marked(value) {
		v = mapped(value, toMarks).Interface()
	}
	return json.Marshal(v)
}

// Unmarshal reads what Marshal wrote.
func Unmarshal(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return err
	}
	if bytes.Contains(b, []byte(mark)) {
		to := reflect.ValueOf(v).Elem()
		to.Set(mapped(to, fromMarks))
	}
	return nil
}

// marked tells whether a string of v needs marks.
func marked(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String()) || strings.Contains(v.String(), mark)
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && marked(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if marked(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for at := v.MapRange(); at.Next(); {
			if marked(at.Value()) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if marked(v.Field(i)) {
				return true
			}
		}
	}
	return false
}

// mapped is a copy of v with every string changed by f.
func mapped(v reflect.Value, f func(string) string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(f(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(mapped(v.Elem(), f))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		}
		for i := range v.Len() {
			out.Index(i).Set(mapped(v.Index(i), f))
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(mapped(v.Index(i), f))
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMap(v.Type()))
		}
		for at := v.MapRange(); at.Next(); {
			out.SetMapIndex(at.Key(), mapped(at.Value(), f))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(mapped(v.Field(i), f))
		}
	}
	return out
}

func toMarks(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 || strings.HasPrefix(s, mark) {
			for i := range size {
				b.WriteString(mark + hex.EncodeToString([]byte{s[i]}))
			}
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

func fromMarks(s string) string {
	parts := strings.Split(s, mark)
	for i, p := range parts[1:] {
		if len(p) >= 2 {
			if one, err := hex.DecodeString(p[:2]); err == nil {
				parts[i+1] = string(one) + p[2:]
			}
		}
	}
	return strings.Join(parts, "")
}
