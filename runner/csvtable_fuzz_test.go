package runner

import "testing"

// FuzzTable: a table is read or refused; what is read has ids that tell its rows
// apart.
func FuzzTable(f *testing.F) {
	for _, s := range []string{"", "a,b\n1,2\n", "\xef\xbb\xbfid\nx\nx\n", "a,a\n", "id,b\n\"x\ny\",2\n", "id\n\n\n", "a;b\n", "\"", "id,b\nx\ny,1,2\n"} {
		f.Add([]byte(s), "id")
		f.Add([]byte(s), "")
	}
	f.Fuzz(func(t *testing.T, data []byte, column string) {
		table, err := readTable(data, column)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for i, r := range table.rows {
			if r.id == "" || seen[r.id] || r.index != i {
				t.Errorf("row %d has id %q, index %d", i, r.id, r.index)
			}
			seen[r.id] = true
		}
	})
}
