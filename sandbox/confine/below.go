package confine

import "strings"

// Below tells whether name is dir or lies in it. Both are absolute and clean.
func Below(name, dir string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}
