"""Single edits of the generator: what happens to a text, a number of a record, a point, a polygon."""

import math
import random
import re
import string

import shapely

METRES_PER_DEGREE = 111_195.0

SHORT = {
    "Street": "St", "Avenue": "Ave", "Boulevard": "Blvd", "Road": "Rd", "Drive": "Dr", "Lane": "Ln", "Court": "Ct",
    "Place": "Pl", "North": "N", "South": "S", "East": "E", "West": "W", "Northwest": "NW", "Southeast": "SE",
    "Company": "Co", "Incorporated": "Inc", "Corporation": "Corp", "Limited": "Ltd", "Associates": "Assoc",
    "Brothers": "Bros", "Services": "Svcs", "Construction": "Constr", "Residential": "Res", "Commercial": "Comm",
    "Single Family Residence": "SFR", "Replace": "Repl", "Installation": "Inst", "Electrical": "Elec",
    "Mechanical": "Mech", "Plumbing": "Plumb", "District": "Dist", "Center": "Ctr", "Apartment": "Apt",
    "Suite": "Ste", "Unit": "#", "and": "&", "Saint": "St", "Mount": "Mt", "Neighborhood": "Nbhd", "Medium": "Med",
    "Management": "Mgmt", "Department": "Dept", "Manufacturing": "Mfg", "Building": "Bldg", "International": "Intl",
}  # fmt: skip
_LONG = {short.lower(): long for long, short in SHORT.items() if short.isalpha()}


def edited_text(text: str, chance: random.Random) -> str:
    """Edit a text in one of the ways that clerks and systems do."""
    ways = (typed_wrongly, abbreviated, spelt_out, reordered, recased, unpunctuated, word_lost, word_more)
    way = chance.choices(ways, (30, 14, 8, 8, 14, 10, 8, 8))[0]
    edited = way(text) if way in (abbreviated, spelt_out, unpunctuated) else way(text, chance)
    return edited if edited != text and edited.strip() else typed_wrongly(text, chance)


def typed_wrongly(text: str, chance: random.Random) -> str:
    """Drop, double, swap or replace one or two letters."""
    letters = list(text)
    for _ in range(chance.choice([1, 1, 1, 2])):
        place = chance.randrange(len(letters)) if letters else 0
        way = chance.randrange(4)
        if way == 0 and len(letters) > 1:
            del letters[place]
        elif way == 1 and place + 1 < len(letters):
            letters[place], letters[place + 1] = letters[place + 1], letters[place]
        elif way == 2 and letters:
            letters[place] = chance.choice(string.ascii_lowercase)
        else:
            letters.insert(place, chance.choice(string.ascii_lowercase))
    return "".join(letters)


def abbreviated(text: str) -> str:
    """Shorten every word that has a usual short form."""
    for long, short in SHORT.items():
        text = re.sub(rf"\b{re.escape(long)}\b", short, text, flags=re.IGNORECASE)
    return text


def spelt_out(text: str) -> str:
    """Write short forms out."""
    return " ".join(_LONG.get(word.lower().rstrip("."), word) for word in text.split(" "))


def reordered(text: str, chance: random.Random) -> str:
    """Swap two words, or bring the last one to the front with a comma."""
    words = text.split(" ")
    if len(words) < 2:
        return text
    if chance.random() < 0.5:
        return f"{words[-1]}, {' '.join(words[:-1])}"
    one, other = chance.sample(range(len(words)), 2)
    words[one], words[other] = words[other], words[one]
    return " ".join(words)


def recased(text: str, chance: random.Random) -> str:
    """Change the case of all letters."""
    return chance.choice([text.upper(), text.lower(), text.title()])


def unpunctuated(text: str) -> str:
    """Take commas, dots, hyphens and apostrophes off."""
    return re.sub(r"[.,'#&/()-]+", " ", text).replace("  ", " ").strip()


def word_lost(text: str, chance: random.Random) -> str:
    """Drop a word."""
    words = text.split(" ")
    if len(words) > 1:
        del words[chance.randrange(len(words))]
    return " ".join(words)


def word_more(text: str, chance: random.Random) -> str:
    """Add what clerks add."""
    more = chance.choice(["(revised)", "- corrected", "REV 1", "see notes", "amended", "USA", "per plan", "the"])
    return f"{text} {more}"


def reformatted(number: str, chance: random.Random) -> str:
    """Write a record's number otherwise: without zeros, hyphens or prefix."""
    ways = [
        number.replace("-", ""),
        re.sub(r"-0+", "-", number),
        re.sub(r"^[A-Z]+-", "", number),
        number.lower(),
        f"FL{number}",
    ]
    return chance.choice([way for way in ways if way != number])


def moved_point(wkb: bytes, metres: float, chance: random.Random) -> bytes:
    """Move a point into any direction."""
    point, turn = shapely.from_wkb(wkb), chance.uniform(0, 2 * math.pi)
    y = point.y + metres * math.sin(turn) / METRES_PER_DEGREE
    x = point.x + metres * math.cos(turn) / (METRES_PER_DEGREE * math.cos(math.radians(point.y)))
    return shapely.to_wkb(shapely.Point(round(x, 7), round(y, 7)), byte_order=1)


def reshaped(wkb: bytes, chance: random.Random) -> bytes:
    """Draw a polygon anew: corners moved, smoothed, a corner cut off or a strip added."""
    shape = shapely.from_wkb(wkb)
    size = math.sqrt(shape.area)
    way = chance.randrange(4)
    if way == 0:
        shape = shapely.transform(shape, lambda at: at + _noise(len(at), size * 0.01, chance))
    elif way == 1:
        shape = shapely.simplify(shape, size * 0.03)
    elif way == 2:
        west, south, east, north = shape.bounds
        corner = shapely.box(west, south, west + (east - west) * 0.3, south + (north - south) * 0.3)
        shape = shape.difference(corner)
    else:
        shape = shape.buffer(size * chance.uniform(0.01, 0.06), join_style="mitre")
    areas = [part for part in shapely.get_parts(shape) if part.geom_type == "Polygon"]
    return shapely.to_wkb(shapely.normalize(shapely.MultiPolygon(areas)), byte_order=1) if areas else wkb


def _noise(count: int, size: float, chance: random.Random) -> list[list[float]]:
    moved = [[chance.gauss(0, size), chance.gauss(0, size)] for _ in range(count)]
    moved[-1] = moved[0]
    return moved
