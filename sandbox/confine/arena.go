//go:build linux

package confine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An arena is memory outside Go's heap for what a forked child reads: it does
// not move, is not collected, and is shared, so that what the child writes can
// be seen by its parent.
type arena struct {
	chunks [][]byte
	free   []byte
	err    error // of the first mapping that failed
}

// arenaChunk fits the script of an ordinary command.
const arenaChunk = 64 << 10

// bytes reserves n zeroed bytes, aligned to 16.
func (a *arena) bytes(n int) []byte {
	n = (n + 15) &^ 15
	if n > len(a.free) {
		size := max(arenaChunk, (n+4095)&^4095)
		m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		if err != nil {
			if a.err == nil {
				a.err = fmt.Errorf("sandbox: memory for a command: %w", err)
			}
			return make([]byte, n) // never used: spawning checks err
		}
		a.chunks = append(a.chunks, m)
		a.free = m
	}
	b := a.free[:n:n]
	a.free = a.free[n:]
	return b
}

// addressOf turns a number into a pointer. It is for memory that is not Go's and
// never moves: arenas.
//
//go:nosplit
//go:norace
func addressOf(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// str stores s with a final zero byte.
func (a *arena) str(s string) uintptr {
	b := a.bytes(len(s) + 1)
	copy(b, s)
	return address(b)
}

// vector stores the strings as execve wants them.
func (a *arena) vector(ss []string) uintptr {
	v := unsafe.Slice((*uintptr)(unsafe.Pointer(unsafe.SliceData(a.bytes((len(ss)+1)*8)))), len(ss)+1)
	for i, s := range ss {
		v[i] = a.str(s)
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(v)))
}

// place stores a copy of v and returns it in its new home.
func place[T any](a *arena, v T) *T {
	p := (*T)(unsafe.Pointer(unsafe.SliceData(a.bytes(int(unsafe.Sizeof(v))))))
	*p = v
	return p
}

// release unmaps everything. Nothing that was handed out may be used any more.
func (a *arena) release() error {
	var errs []error
	for _, c := range a.chunks {
		errs = append(errs, unix.Munmap(c))
	}
	a.chunks, a.free = nil, nil
	return errors.Join(errs...)
}

// A script is a list of calls with their names for error messages.
type script struct {
	a     *arena
	calls []call
	names []string
}

// do appends a call that must succeed.
func (s *script) do(name string, nr uintptr, args ...uintptr) *call {
	c := call{nr: nr}
	copy(c.a[:], args)
	s.calls = append(s.calls, c)
	s.names = append(s.names, name)
	return &s.calls[len(s.calls)-1]
}

// try appends a call that may fail.
func (s *script) try(name string, nr uintptr, args ...uintptr) *call {
	c := s.do(name, nr, args...)
	c.mode = mayFail
	return c
}

// store copies the calls into the arena.
func (s *script) store() (first, n uintptr) {
	if len(s.calls) == 0 {
		return 0, 0
	}
	m := s.a.bytes(len(s.calls) * int(unsafe.Sizeof(call{})))
	dst := unsafe.Slice((*call)(unsafe.Pointer(unsafe.SliceData(m))), len(s.calls))
	copy(dst, s.calls)
	return uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(len(s.calls))
}
