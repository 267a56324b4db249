"""Which files of a target can be compiled together: those that give no name to two things of their
own. Reads lines `TARGET FILE`, prints `FILE=GROUP` for files that are not alone."""
import os
import re
import sys

MOST = 8  # files in a group
# What a line without indentation declares: a type's name, or the last name before a bracket, a brace,
# = or ; (of a member with its type's) and nothing that is a macro's.
TYPE = re.compile(r"(?:class|struct|union|enum(?: class)?) (\w+)")
ALIAS = re.compile(r"using (\w+) =")
OTHER = re.compile(
    r"(?!namespace|template|using|extern|static_assert)[A-Za-z][^\"(\[{=;]*?([\w:~]+)\s*(?:[(\[{=;]|$)")
# What would change the files after it: macros of its own, another `new` for the whole program.
ALONE = re.compile(r"^#(?:define|undef|pragma (?!once))|^void\* operator new", re.MULTILINE)
TEXT = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)


def names_of(file, code):
    """name -> what it is: the same for an alias of the same type, of this file alone for others."""
    names = {}
    for line in TEXT.sub('""', code).splitlines():
        if alias := ALIAS.match(line):
            names[alias[1]] = line
            continue
        line = re.sub(r"\[\[\w+\]\] *|<[^<>]*>", "", line)
        match = TYPE.match(line) or OTHER.match(line)
        if match and not match[1].isupper():
            names[match[1]] = file
    return names


def main():
    groups = {}  # target -> [(files, names)]
    for line in sys.stdin:
        target, file = line.rstrip("\n").split(" ", 1)
        if not file.endswith(".cpp") or not os.path.isfile(file):
            continue
        with open(file, encoding="utf-8") as source:
            code = source.read()
        if ALONE.search(code):
            continue
        names = names_of(file, code)
        for files, taken in groups.setdefault(target, []):
            if len(files) < MOST and all(taken.get(name, what) == what for name, what in names.items()):
                files.append(file)
                taken.update(names)
                break
        else:
            groups[target].append(([file], names))
    for target, some in groups.items():
        for number, (files, _) in enumerate(some):
            if len(files) > 1:
                print("\n".join(f"{file}={target}-{number}" for file in files))


main()
