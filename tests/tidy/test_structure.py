"""script/measure-structure counts what it says: on a small checkout whose numbers are known."""
import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("measure_structure", ROOT / "script" / "measure_structure.py")
measure = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(measure)

HEADER = """
// class Ghost { void In() ; int a_comment_; };
class Wide final : public Base {
 public:
  explicit Wide(int a = 3) : a_(a), b_{1} {}
  Wide(const Wide&) = delete;
  std::optional<std::pair<int, int>> Find(const std::function<void(int)>& look) const;
  int a() const { if (a_ > 0) { return a_; } return 0; }
  bool operator==(const Wide&) const = default;
  bool operator()(int x) { return x == a_; }

 private:
  struct Inner {
    int x = 0;
    void Method();
  };
  enum class Kind { kOne, kTwo };
  using Numbers = std::vector<int>;
  static constexpr int kMost = 3;
  int a_ = 0, b_;
  std::function<void(int)> on_line_;
  std::map<int, std::vector<int>> by_key_{};
  Mutex mutex_;
  bool stop_ CAIRN_GUARDED_BY(mutex_) = false;
};
"""
RUN = "".join(f"  Line{i}();\n" for i in range(6))


def make(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_methods_and_members_are_counted(tmp_path):
    make(tmp_path, {"src/x/wide.h": HEADER})
    found = {name: (methods, members) for methods, members, name, _ in measure.classes(tmp_path)}
    # The constructor, Find, a, operator(); a_, b_, on_line_, by_key_, mutex_, stop_.
    assert found == {"Wide": (4, 6), "Inner": (1, 1)}


def test_sources_without_a_header_are_found(tmp_path):
    make(tmp_path, {"src/client/a.cc": "", "src/client/a.h": "", "src/client/b.cc": "", "src/base/c.cc": "",
                    "src/client/b_test.cc": "", "include/cairn/c.h": ""})
    assert measure.without_header(tmp_path, measure.ROLES) == (1, 2)
    assert measure.without_header(tmp_path) == (1, 3)


def test_repeated_runs_are_found_whatever_stands_between_their_lines(tmp_path):
    make(tmp_path, {"src/a.cc": "void A() {\n" + RUN + "}\n", "src/b.cc": RUN.replace(";\n", "; // why\n\n"),
                    "src/c.cc": RUN.replace("Line5", "Other"), "src/b_test.cc": RUN})
    repeated, lines, places = measure.repeated(tmp_path)
    assert (repeated, lines) == (12, 19)
    assert places == [["src/a.cc:2", "src/b.cc:1"]]


def test_files_of_a_way_are_those_that_the_page_links_to(tmp_path):
    page = """## The life of a pull
1. [a](../../src/x/a.h), [its source](../../src/x/a.cc), [public](../../include/cairn/client.h#l3), [no file](x.md)
## The life of a move
1. [b](../../src/x/b.h)
"""
    make(tmp_path, {"docs/internals/architecture.md": page})
    assert measure.files_of_way(tmp_path, "The life of a pull") == {"src/x/a", "include/cairn/client"}


def test_this_checkout_can_be_measured():
    assert all(measure.files_of_way(ROOT, title) for title in measure.WAYS.values())
    assert len(measure.classes(ROOT)) > 300
