// Package patch reads and applies the patch format that models write.
//
//	*** Begin Patch
//	*** Add File: path            then lines starting with "+"
//	*** Delete File: path
//	*** Update File: path         optionally next: *** Move to: path
//	@@ optional context line      one or more hunks; lines start with " ", "+" or "-"
//	*** End of File               optional: the hunk stands at the end of the file
//	*** End Patch
//
// [Parse] reads the text, [Prepare] checks every change against the files and
// changes nothing, [Plan.Apply] writes. A patch that does not fit as a whole
// never reaches its first write.
//
// Files are only touched through an [os.Root] of one writable root, after every
// link of the path has been resolved: "..", absolute paths and links may lead
// anywhere, what counts is where they end. Only regular UTF-8 files with a
// single name are changed; line ends, byte order mark, mode and owner stay.
//
// The package is meant to run inside a confined child: see [Helper].
package patch

// Kind is what a change does to its file; the words are those of events.
type Kind string

// Kinds of changes.
const (
	Add    Kind = "add"
	Delete Kind = "delete"
	Update Kind = "update"
)

// Patch is a parsed patch.
type Patch struct {
	Changes []Change
}

// Change is the section of one file.
type Change struct {
	Kind Kind
	Path string
	// MoveTo is the new path of an updated file, "" when it stays.
	MoveTo string
	// Lines are the lines of an added file, without line ends.
	Lines []string
	// Hunks are the changes of an updated file, in file order. It is empty only
	// for a plain move.
	Hunks []Hunk
}

// Hunk is one place of an updated file.
type Hunk struct {
	// Context are the lines named after "@@", outermost first: each is searched
	// below the one before, and the hunk below the last.
	Context []string
	Lines   []Line
	// EndOfFile: the lines must be the last ones of the file.
	EndOfFile bool
}

// Line is one line of a hunk.
type Line struct {
	Op   byte // ' ' kept, '-' removed, '+' added
	Text string
	// blank marks a kept line that was written as nothing at all: models leave
	// such lines between hunks, so it need not exist in the file.
	blank bool
}

const (
	beginMarker  = "*** Begin Patch"
	endMarker    = "*** End Patch"
	addMarker    = "*** Add File: "
	deleteMarker = "*** Delete File: "
	updateMarker = "*** Update File: "
	moveMarker   = "*** Move to: "
	eofMarker    = "*** End of File"
	hunkMarker   = "@@"
)
